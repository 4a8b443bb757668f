package ddp

import (
	"fmt"
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// progressed is clause 6: exactly those elements changed that the reference
// update changes, in every step and over the run.
func progressed(p *contract.Pass) {
	test, control, ok := pair(p)
	if !ok {
		return
	}
	if test.Exact() {
		for step := range test.Config.Steps {
			changed(p, test, control, step)
		}
		unmoved(p, test, control)
	}
	// The control's own steps are judged by the oracle, and so are those of a
	// plan that does not promise the control's bits.
	for _, r := range []*evidence.Run{control, test} {
		if r.Config.Evidence.Capture && (r == control || !r.Exact()) {
			for step := range r.Config.Steps {
				moved(p, r, step)
			}
		}
	}
}

// changed compares which elements a step changed on every rank with the
// control's.
func changed(p *contract.Pass, test, control *evidence.Run, step int) {
	want := byTensor(control, 0, trace.KindChanged, step)
	for rank := range test.Header.World {
		got := byTensor(test, rank, trace.KindChanged, step)
		for _, t := range test.Params {
			p.Expect(1)
			g, ok := got[t.Name]
			w, has := want[t.Name]
			if !ok || !has || g.Digest == nil || w.Digest == nil {
				continue
			}
			p.Saw(1)
			if g.Count != w.Count || *g.Digest != *w.Digest {
				p.Report(contract.Finding{Rank: rank, Step: step, Tensor: t.Name, Index: -1,
					Got: fmt.Sprintf("%d of %d elements", g.Count, t.Len), Want: fmt.Sprintf("%d of %d elements", w.Count, t.Len),
					Message: fmt.Sprintf("the step of rank %d changed other elements than the single worker's", rank)})
			}
		}
	}
}

// unmoved compares the elements that still have their initial bits at the end.
func unmoved(p *contract.Pass, test, control *evidence.Run) {
	last := test.Config.Steps - 1
	want := byTensor(control, 0, trace.KindUnmoved, last)
	for rank := range test.Header.World {
		got := byTensor(test, rank, trace.KindUnmoved, last)
		for _, t := range test.Params {
			p.Expect(1)
			g, ok := got[t.Name]
			w, has := want[t.Name]
			if !ok || !has {
				continue
			}
			p.Saw(1)
			if !slices.Equal(g.Ranges, w.Ranges) {
				p.Report(contract.Finding{Rank: rank, Step: last, Tensor: t.Name, Index: firstOutside(g.Ranges, w.Ranges),
					Got: fmt.Sprintf("%d elements unmoved", g.Count), Want: fmt.Sprintf("%d elements unmoved", w.Count),
					Message: fmt.Sprintf("over the run other elements moved on rank %d than on the single worker", rank)})
			}
		}
	}
}

// byTensor finds a rank's events of one kind and step.
func byTensor(r *evidence.Run, rank int, kind trace.Kind, step int) map[string]trace.Event {
	out := map[string]trace.Event{}
	for e := range r.Events(rank, kind) {
		if e.Step == step {
			out[e.Tensor] = e
		}
	}
	return out
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
func moved(p *contract.Pass, r *evidence.Run, step int) {
	for rank := range r.Header.World {
		p.Expect(len(r.Params))
		s, ok := captured(r, rank, step)
		if !ok {
			continue
		}
		next, err := s.update(p, r, step)
		if err != nil {
			p.Doubt("%v", err)
			return
		}
		got := byTensor(r, rank, trace.KindChanged, step)
		for _, t := range r.Params {
			e, ok := got[t.Name]
			if !ok || e.Digest == nil {
				continue
			}
			p.Saw(1)
			d, count := difference(t.Name, s.before[trace.Weight][t.Name], next[trace.Weight][t.Name])
			if count != e.Count || d != *e.Digest {
				p.Report(contract.Finding{Rank: rank, Step: step, Tensor: t.Name, Index: -1,
					Got: fmt.Sprintf("%d elements changed", e.Count), Want: fmt.Sprintf("%d elements", count),
					Message: fmt.Sprintf("rank %d changed other elements than the optimizer's update of its own gradient", rank)})
			}
		}
	}
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
