package zero

import (
	"fmt"
	"maps"
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/bounded"
	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// full is clause 2: the sharded step is that of unsharded data parallelism.
func full(p *contract.Pass, r *evidence.Run) {
	c, ok := unsharded(p, r)
	if !ok {
		return
	}
	for rank := range r.Header.World {
		for _, x := range r.Early(rank) {
			p.At(rank, x.Step).Of(x.Unit).In(contract.Backward, 0).Report(nil, nil,
				"the gradient of unit %s was reduced on rank %d before that of logical worker %d was complete", x.Unit, rank, x.Worker)
		}
	}
	for step := r.First; step < r.Steps; step++ {
		if step < c.Equal {
			workers(p, c, step)
		}
		for rank := range r.Header.World {
			scalars(c, step, rank)
		}
	}
	states(p, c)
}

// unsharded reads the control beside the test run: the same task on the same
// mesh, unsharded.
func unsharded(p *contract.Pass, test *evidence.Run) (c *compare.Comparison, ok bool) {
	return compare.With(p, test, func(c *compare.Comparison) error {
		if x := c.Control.Config.Plan; x.Zero != 0 || x.Dims() != test.Config.Plan.Dims() || c.Control.Workers != test.Workers {
			return fmt.Errorf("the control's plan is %s: want that of %s without sharding", x, test.Config.Plan)
		}
		return nil
	})
}

// states compares the state after every step with the control's, or judges every
// step by itself where the plan does not promise that: a ring adds in an order
// that depends on what is reduced, and ranks that shard gradients walk other
// workers.
func states(p *contract.Pass, c *compare.Comparison) {
	if !c.Same {
		bounded.Judge(p, c.Test, nil)
		return
	}
	for step := c.Test.First - 1; step < c.Test.Steps; step++ { // what a run begins with, too
		state(p, c, step)
	}
}

// workers compares the logical workers' gradients as they enter the sum over workers:
// a difference here is of the computation, or of a reduction that did not wait for it.
func workers(p *contract.Pass, c *compare.Comparison, step int) {
	for w := range c.Test.Working() {
		for _, t := range c.Test.Sources {
			got, ok := total(c.Test, everyone(c.Test), step, trace.WorkerGrad, t.Name, w)
			want, has := total(c.Control, everyone(c.Control), step, trace.WorkerGrad, t.Name, w)
			evidence.Lost(p, step, trace.WorkerGrad, want)
			c.Test.Compare(p.At(got.Rank, step).Of(t.Name).Against(contract.Control), ok && has && got.Count >= want.Count, got, want,
				"the gradient of logical worker %d is not the unsharded run's", w)
		}
	}
}

// state compares gradients, weights and moments: the shards of all ranks added
// up with the control's copy. Shards that are not all recorded cannot be judged.
func state(p *contract.Pass, c *compare.Comparison, step int) {
	whats := c.Test.State()
	if step >= c.Test.First {
		whats = append([]string{trace.Grad}, whats...)
	}
	for _, what := range whats {
		for _, t := range c.Test.Params {
			got, ok := c.Test.Logical(step, what, t.Name, 0)
			want, has := c.Control.Logical(step, what, t.Name, 0)
			evidence.Lost(p, step, what, want)
			if p.Found(ok && has && got.Count >= want.Count) && !evidence.Same(got, want) {
				rank := soleHolder(c.Test, step, what, t.Name)
				c.Test.Report(p.At(rank, step).Of(t.Name).Against(contract.Control), got, want, "%s, its shards added up, is not the unsharded run's", what)
			}
		}
	}
}

// soleHolder is the rank that alone holds a tensor, -1 where several share it.
func soleHolder(r *evidence.Run, step int, what, tensor string) int {
	who := -1
	for rank := range r.Header.World {
		if e, ok := r.Digest(rank, step, what, tensor, 0); ok && e.Once {
			if who >= 0 {
				return -1
			}
			who = rank
		}
	}
	return who
}

// scalars compares what a rank believes with what the same rank believes
// unsharded. The first two are no sums, so every plan promises them.
func scalars(c *compare.Comparison, step, rank int) {
	whats := []string{trace.LR, trace.Counter}
	if c.Same && c.LastStage(rank) {
		whats = append(whats, trace.Loss)
	}
	if c.Same {
		whats = append(whats, trace.Norm, trace.Coef)
	}
	for _, what := range whats {
		c.Scalar(step, rank, rank, what, "is not the unsharded run's")
	}
}

func everyone(r *evidence.Run) []int { return slices.Sorted(maps.Keys(r.Ranks)) }

// total adds up what the given ranks recorded of a tensor, replicas included, so
// without its elements; the event has the first of these ranks.
func total(r *evidence.Run, ranks []int, step int, what, tensor string, worker int) (sum trace.Event, ok bool) {
	for _, rank := range ranks {
		if e, has := r.Digest(rank, step, what, tensor, worker); has {
			e.Data = nil
			sum, ok = evidence.Add(sum, e), true
		}
	}
	return sum, ok
}
