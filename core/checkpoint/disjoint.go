package checkpoint

import (
	"cmp"
	"fmt"
	"slices"
)

// placed is a rectangle with the file that it is in.
type placed struct {
	Rect
	file *file
}

// disjoint refuses an element that is stored twice, in one file or in two: a
// count of elements would take it for one that is missing.
func (c *Checkpoint) disjoint() error {
	var all []placed
	for _, f := range c.files {
		for _, r := range f.rects {
			all = append(all, placed{r.Rect, f})
		}
	}
	slices.SortStableFunc(all, func(a, b placed) int {
		return cmp.Or(cmp.Compare(a.What, b.What), cmp.Compare(a.Tensor, b.Tensor), cmp.Compare(a.R.Lo, b.R.Lo), cmp.Compare(a.C.Lo, b.C.Lo))
	})
	var open []placed // those of the same tensor that reach the row at hand
	for _, x := range all {
		open = slices.DeleteFunc(open, func(o placed) bool {
			return o.What != x.What || o.Tensor != x.Tensor || o.R.Hi <= x.R.Lo
		})
		for _, o := range open {
			if !o.C.Intersect(x.C).Empty() {
				return fmt.Errorf("%s: %v is stored twice: overlaps %v of %s", x.file.f.Name(), x.Rect, o.Rect, o.file.f.Name())
			}
		}
		open = append(open, x)
	}
	return nil
}

// Holds refuses a checkpoint that holds anything but the given whole tensors,
// all of each, or that has digests of other kinds.
func (c *Checkpoint) Holds(whole []Rect) error {
	type name struct{ what, tensor string }
	want, kinds := map[name]Rect{}, map[string]bool{}
	for _, r := range whole {
		want[name{r.What, r.Tensor}], kinds[r.What] = r, true
	}
	got := map[name]int{}
	for _, f := range c.files {
		for _, r := range f.rects {
			w, ok := want[name{r.What, r.Tensor}]
			if !ok || r.R.Hi > w.R.Hi || r.C.Hi > w.C.Hi {
				return fmt.Errorf("%s: %v is of no tensor of the run", f.f.Name(), r.Rect)
			}
			got[name{r.What, r.Tensor}] += r.Len()
		}
	}
	for _, w := range whole { // no element is there twice, so a count tells
		if n := got[name{w.What, w.Tensor}]; n != w.Len() {
			return fmt.Errorf("%s: %v: has %d of %d elements", c.Dir, w, n, w.Len())
		}
	}
	for kind := range c.Manifest.Digests {
		if !kinds[kind] {
			return fmt.Errorf("%s: the manifest has a digest of %q, which the run has not", c.Dir, kind)
		}
	}
	for kind := range kinds {
		if _, ok := c.Manifest.Digests[kind]; !ok {
			return fmt.Errorf("%s: the manifest has no digest of %s", c.Dir, kind)
		}
	}
	return nil
}
