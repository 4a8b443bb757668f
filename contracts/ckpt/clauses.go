package ckpt

import (
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// open reads both runs and the step at which the test run goes on. Where the
// ranks do not say the same of it the pass doubts.
func open(p *contract.Pass) (c *compare.Comparison, first int, ok bool) {
	if c, ok = compare.Open(p); !ok {
		return nil, 0, false
	}
	first = -1
	for rank := range c.Test.Header.World {
		found := false
		for e := range c.Test.Events(rank, trace.KindResume) {
			if found = true; first >= 0 && e.Step != first {
				p.At(rank, e.Step).Report(e.Step, first, "rank %d goes on at step %d, other ranks at step %d", rank, e.Step, first)
			}
			first = e.Step
		}
		if !found {
			p.Doubt("rank %d did not resume from a checkpoint", rank)
			return nil, 0, false
		}
	}
	if first < 1 || first >= c.Test.Config.Steps {
		p.Doubt("the run goes on at step %d of %d", first, c.Test.Config.Steps)
		return nil, 0, false
	}
	return c, first, true
}

// loaded is clause 1.
func loaded(p *contract.Pass) {
	if c, first, ok := open(p); ok {
		c.State(first-1, nil)
	}
}

// continued is clause 2.
func continued(p *contract.Pass) {
	c, first, ok := open(p)
	if !ok {
		return
	}
	for step := first; step < c.Test.Config.Steps; step++ {
		c.State(step, nil)
		for rank := range c.Test.Header.World {
			scalar(p, c, rank, step, trace.Norm)
			if c.LastStage(rank) {
				scalar(p, c, rank, step, trace.Loss)
			}
		}
	}
}

// counted is clause 3.
func counted(p *contract.Pass) {
	c, first, ok := open(p)
	if !ok {
		return
	}
	for rank := range c.Test.Header.World {
		p.Expect(1)
		want, ok := c.Control.Scalar(0, first-1, trace.Counter)
		for e := range c.Test.Events(rank, trace.KindResume) {
			if !ok {
				break
			}
			p.Saw(1)
			if float64(e.Count) != float64(want.Value) {
				p.At(rank, first-1).Report(e.Count, float64(want.Value),
					"rank %d goes on after %d optimizer steps, the uninterrupted run had taken %v", rank, e.Count, float64(want.Value))
			}
		}
		for step := first; step < c.Test.Config.Steps; step++ {
			for _, what := range []string{trace.Counter, trace.LR, trace.Coef} {
				scalar(p, c, rank, step, what)
			}
		}
	}
}

// scalar compares a rank's scalar with the uninterrupted run's.
func scalar(p *contract.Pass, c *compare.Comparison, rank, step int, what string) {
	p.Expect(1)
	got, ok := c.Test.Scalar(rank, step, what)
	want, has := c.Control.Scalar(0, step, what)
	if !ok || !has {
		return
	}
	p.Saw(1)
	if got.Value != want.Value || got.Bits != want.Bits {
		p.At(rank, step).Report(float64(got.Value), float64(want.Value), "%s of rank %d is not the uninterrupted run's", what, rank)
	}
}

// fed is clause 4.
func fed(p *contract.Pass) {
	c, first, ok := open(p)
	if !ok {
		return
	}
	want := sequences(c.Control, 0)
	for rank := range c.Test.Header.World {
		got := sequences(c.Test, rank)
		for step := first; step < c.Test.Config.Steps; step++ {
			for _, w := range c.Test.Config.Plan.RankWorkers(c.Test.Config.Model, c.Test.At(rank).DP) {
				p.Expect(1)
				at := taken{step, w}
				a, ok := got[at]
				b, has := want[at]
				if !ok || !has {
					continue
				}
				p.Saw(1)
				if !slices.Equal(a, b) {
					p.At(rank, step).Report(a, b, "logical worker %d on rank %d takes other sequences than in the uninterrupted run", w, rank)
				}
			}
		}
	}
}

// taken is a logical worker in a step.
type taken struct{ step, worker int }

// sequences are the ids that a rank's workers took, micro-batch by micro-batch.
func sequences(r *evidence.Run, rank int) map[taken][]int64 {
	out := map[taken][]int64{}
	for e := range r.Events(rank, trace.KindData) {
		at := taken{e.Step, e.Worker}
		out[at] = append(out[at], e.IDs...)
	}
	return out
}
