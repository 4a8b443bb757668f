package ckpt

import (
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// resumed is a check of both runs from the step first on, at which the test run
// goes on. Where the ranks do not say the same of it the pass doubts.
func resumed(check func(p *contract.Pass, c *compare.Comparison, first int)) func(*contract.Pass) {
	return func(p *contract.Pass) {
		if c, ok := compare.OpenResumed(p); ok {
			if first, ok := start(p, c.Test); ok {
				check(p, c, first)
			}
		}
	}
}

// start is the step at which all ranks go on.
func start(p *contract.Pass, r *evidence.Run) (first int, ok bool) {
	first = -1
	for rank := range r.Header.World {
		found := false
		for e := range r.Events(rank, trace.KindResume) {
			if found = true; first >= 0 && e.Step != first {
				p.At(rank, e.Step).Report(e.Step, first, "rank %d goes on at step %d, other ranks at step %d", rank, e.Step, first)
			}
			first = e.Step
		}
		if !found {
			p.Doubt("rank %d did not resume from a checkpoint", rank)
			return 0, false
		}
	}
	if first < 1 || first >= r.Config.Steps {
		p.Doubt("the run goes on at step %d of %d", first, r.Config.Steps)
		return 0, false
	}
	return first, true
}

// loaded is clause 1.
func loaded(_ *contract.Pass, c *compare.Comparison, first int) { c.State(first-1, nil) }

// differs says of a scalar what is wrong with it.
const differs = "is not the uninterrupted run's"

// continued is clause 2.
func continued(_ *contract.Pass, c *compare.Comparison, first int) {
	for step := first; step < c.Test.Steps; step++ {
		c.State(step, nil)
		for rank := range c.Test.Header.World {
			c.Scalar(step, rank, 0, trace.Norm, differs)
			if c.LastStage(rank) {
				c.Scalar(step, rank, 0, trace.Loss, differs)
			}
		}
	}
}

// counted is clause 3.
func counted(p *contract.Pass, c *compare.Comparison, first int) {
	e, known := c.Control.Scalar(0, first-1, trace.Counter)
	want := float64(e.Value)
	for rank := range c.Test.Header.World {
		for e := range c.Test.Events(rank, trace.KindResume) { // start found one at the least
			if p.Found(known) && float64(e.Count) != want {
				p.At(rank, first-1).Report(e.Count, want,
					"rank %d goes on after %d optimizer steps, the uninterrupted run had taken %v", rank, e.Count, want)
			}
		}
		for step := first; step < c.Test.Steps; step++ {
			for _, what := range []string{trace.Counter, trace.LR, trace.Coef} {
				c.Scalar(step, rank, 0, what, differs)
			}
		}
	}
}

// fed is clause 4.
func fed(p *contract.Pass, c *compare.Comparison, first int) {
	control := sequences(c.Control, 0)
	for rank := range c.Test.Header.World {
		test := sequences(c.Test, rank)
		for step := first; step < c.Test.Steps; step++ {
			for _, w := range c.Test.Config.Plan.RankWorkers(c.Test.Config.Model, c.Test.At(rank).DP) {
				got, ok := test[taken{step, w}]
				want, has := control[taken{step, w}]
				if p.Found(ok && has) && !slices.Equal(got, want) {
					p.At(rank, step).Report(got, want,
						"logical worker %d on rank %d takes other sequences than in the uninterrupted run", w, rank)
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
