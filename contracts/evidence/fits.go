package evidence

import (
	"fmt"

	"github.com/lockstep-ml/lockstep/core/trace"
)

// slice is a parameter as a rank's layout has it.
type slice struct {
	rank   int
	tensor string
}

// place is where that lies: in a unit, and in the rank's flat buffers.
type place struct {
	unit   string
	lo, hi int64
}

// Misfit says in what the history contradicts the layout that its own header gives
// the ranks, or the steps that it says, "" where it does not: an event after the last
// step; a digest, or what a step changed, in another unit than its tensor's; elements
// that lie elsewhere in the buffers or are of another number; and elements that count
// twice or not at all. No clause can say what such evidence is of. What a trainer leaves out is not judged, nor is a tensor that the
// layout gives to another rank: clauses are about that.
func (r *Run) Misfit() string {
	places := map[slice]place{}
	for rank := range r.Ranks {
		for _, l := range r.Layouts(rank) {
			for _, p := range l.Params {
				places[slice{rank, p.Name}] = place{l.Units[p.Unit].Name, int64(p.Off), int64(p.Off + p.Len())}
			}
		}
	}
	for e := range r.All {
		if after(&e, r.Config.Steps) {
			return late(&e, r.Config.Steps)
		}
		if e.Kind != trace.KindDigest && e.Kind != trace.KindChanged && e.Kind != trace.KindUnmoved {
			continue
		}
		at, known := places[slice{e.Rank, e.Tensor}]
		switch {
		case !known:
		case e.Unit != "" && e.Unit != at.unit:
			return fmt.Sprintf("a %s event of rank %d in step %d has %s in unit %s, the model in unit %s", e.Kind, e.Rank, e.Step, e.Tensor, e.Unit, at.unit)
		case e.Hi != 0 && (e.Lo < at.lo || e.Hi > at.hi || e.Hi-e.Lo != e.Count):
			return fmt.Sprintf("a %s event of rank %d in step %d has %d elements of %s at [%d,%d), the rank has that at [%d,%d)", e.Kind, e.Rank, e.Step, e.Count, e.Tensor, e.Lo, e.Hi, at.lo, at.hi)
		}
	}
	return r.uncounted()
}

// uncounted says of which tensor of a step's state not every element counts once,
// although all that its holders have is recorded.
func (r *Run) uncounted() string {
	held := r.Held()
	for step := r.First - 1; step < r.Steps; step++ {
		for _, what := range append(r.State(), trace.Grad) {
			for _, t := range r.Params {
				sum, ok := r.Logical(step, what, t.Name, 0)
				if sum.Count == t.Len || !ok && !r.counts {
					continue
				}
				if all := Whole(BySlice(r.Copies(held[t.Name], step, what, 0))); all.Count == t.Len {
					return fmt.Sprintf("%d elements of %s %s in step %d count, of %d that are recorded", sum.Count, what, t.Name, step, t.Len)
				}
			}
		}
	}
	return ""
}
