package ddp

import (
	"fmt"

	"github.com/lockstep-ml/lockstep/contracts/bounded"
	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// progressed is clause 6: exactly those elements changed that the reference
// update changes, in every step and over the run.
func progressed(p *contract.Pass, c *compare.Comparison) {
	if c.Test.Exact() {
		for step := c.Test.First; step < c.Test.Steps; step++ {
			for _, t := range c.Test.Params {
				changed(p, c, step, t)
			}
		}
		for _, t := range c.Test.Params {
			unmoved(p, c, t)
		}
	}
	// The control's own steps are judged by the oracle, and so are those of a
	// plan that does not promise the control's bits.
	for _, r := range []*evidence.Run{c.Control, c.Test} {
		if !r.Config.Recording.Capture || r == c.Test && r.Exact() {
			continue
		}
		replicas := bounded.Replicas(r)
		for step := r.First; step < r.Steps; step++ {
			for _, m := range replicas {
				moved(p, r, m, step, r == c.Control)
			}
		}
	}
}

// changed compares which elements of a tensor a step changed with the control's:
// slices must add up to them, and copies of one slice must agree.
func changed(p *contract.Pass, c *compare.Comparison, step int, t evidence.Tensor) {
	control := c.Control.Changes(c.Control.Held()[t.Name], step)
	copies, n := c.Test.Changes(c.Held[t.Name], step), c.Expected(trace.Grad, t.Name) // recorded where gradients are owned
	if p.Expect(n); len(control) == 0 {
		return
	}
	p.Saw(min(n, len(copies)))
	want, slices := control[0].Event, evidence.BySlice(copies)
	report := func(rank int, who string, got, want trace.Event, than string) {
		of := func(e trace.Event) string { return fmt.Sprintf("%d of %d elements", e.Count, t.Len) }
		at := p.At(rank, step).Of(t.Name)
		if than == alone {
			at = at.Against(contract.Control)
		}
		at.Report(of(got), of(want), "the step of %s changed other elements than %s", who, than)
	}
	found := false
	for _, s := range slices {
		ref, than := s[0].Event, fmt.Sprintf("that of rank %d", s[0].Rank)
		if !c.Split(t.Name) {
			ref, than = want, alone
		}
		for _, x := range s {
			if !sameChange(x.Event, ref) {
				found = true
				report(x.Rank, fmt.Sprintf("rank %d", x.Rank), x.Event, ref, than)
			}
		}
	}
	if sum := evidence.Whole(slices); !found && len(copies) >= n && !sameChange(sum, want) {
		report(-1, "all ranks together", sum, want, alone)
	}
}

// alone is what a change is held against that is no copy's.
const alone = "the single worker's"

func sameChange(a, b trace.Event) bool {
	return a.Digest != nil && b.Digest != nil && a.Count == b.Count && *a.Digest == *b.Digest
}

// unmoved compares the elements that still have their initial bits at the end
// with the control's, each copy or slice by itself.
func unmoved(p *contract.Pass, c *compare.Comparison, t evidence.Tensor) {
	control := c.Control.Unmoved(c.Control.Held()[t.Name])
	copies, n := c.Test.Unmoved(c.Held[t.Name]), c.Expected(trace.Weight, t.Name)
	if p.Expect(n); len(control) == 0 {
		return
	}
	p.Saw(min(n, len(copies)))
	for _, x := range copies {
		got, want := x.Event.Ranges, x.Slice(control[0].Event.Ranges)
		if index := firstOutside(got, want); index >= 0 {
			of := func(n int64) string { return fmt.Sprintf("%d elements unmoved", n) }
			f := p.At(x.Rank, c.Test.Config.Steps-1).Of(t.Name).Against(contract.Control).Finding(of(x.Event.Count), of(length(want)),
				"over the run other elements moved on rank %d than on the single worker", x.Rank)
			f.Index = x.Index(index)
			p.Report(f)
		}
	}
}

func length(ranges [][2]int64) (n int64) {
	for _, x := range ranges {
		n += x[1] - x[0]
	}
	return n
}

// firstOutside is the first element that lies in only one of two ascending
// lists of ranges.
func firstOutside(a, b [][2]int64) int64 {
	for i := 0; ; i++ {
		switch {
		case i >= len(a) && i >= len(b):
			return -1
		case i >= len(a):
			return b[i][0]
		case i >= len(b):
			return a[i][0]
		case a[i][0] != b[i][0]:
			return min(a[i][0], b[i][0])
		case a[i][1] != b[i][1]:
			return min(a[i][1], b[i][1])
		}
	}
}

// moved recomputes a captured step from the run's own weights, moments and
// reduced gradient: exactly the elements that the recomputed update changes
// may have changed, and all of them must.
func moved(p *contract.Pass, r *evidence.Run, m bounded.Replica, step int, control bool) {
	p.Expect(len(r.Params))
	s, ok := bounded.Captured(r, m, step)
	if !ok {
		return
	}
	next, err := s.Update(p, r, step)
	if err != nil {
		p.Doubt("%v", err)
		return
	}
	for _, t := range r.Params {
		slices := evidence.BySlice(r.Changes(m.Held[t.Name], step))
		if !complete(r, m.Held[t.Name], slices) {
			continue
		}
		p.Saw(1)
		got := evidence.Whole(slices)
		d, count := difference(t.Name, s.Before[trace.Weight][t.Name], next[trace.Weight][t.Name])
		if got.Digest == nil || count != got.Count || d != *got.Digest {
			rank := slices[0][0].Rank
			at := p.At(rank, step).Of(t.Name)
			if control {
				at = at.By(contract.Control)
			}
			at.Report(fmt.Sprintf("%d elements changed", got.Count), fmt.Sprintf("%d elements", count),
				"rank %d changed other elements than the optimizer's update of its own gradient", rank)
		}
	}
}

// complete reports whether there is a copy of every slice.
func complete(r *evidence.Run, held []evidence.Holding, slices [][]evidence.Copy) bool {
	var all []evidence.Copy
	for _, h := range held {
		all = append(all, evidence.Copy{Holding: h})
	}
	return len(slices) > 0 && len(slices) == len(evidence.BySlice(all))
}

// difference is the digest of a changed event: the elements whose bits differ,
// each with bits 1.
func difference(name string, a, b []float32) (d kernels.Digest, count int64) {
	id := kernels.TensorID(name)
	for i := range a {
		if kernels.Bits(a[i]) != kernels.Bits(b[i]) {
			x, y := kernels.Mix(id, uint64(i), 1)
			d.Add(kernels.Digest{A: x, B: y})
			count++
		}
	}
	return d, count
}
