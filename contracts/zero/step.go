package zero

import (
	"fmt"

	"github.com/lockstep-ml/lockstep/contracts/bounded"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// full is clause 2: the sharded step is that of unsharded data parallelism.
func full(p *contract.Pass) {
	test, control, ok := pair(p)
	if !ok {
		return
	}
	same := promised(test, control)
	for step := range test.Config.Steps {
		for w := range test.Workers {
			if test.Busy(w) && (same || step == 0 && test.Config.Plan.CanonicalActivations()) {
				workers(p, test, control, step, w)
			}
		}
		whats := []string{trace.LR, trace.Counter} // no sums
		if same {
			whats = append(whats, trace.Loss, trace.Norm, trace.Coef)
		}
		for rank := range test.Header.World {
			scalars(p, test, control, step, rank, whats)
		}
	}
	states(p, test, control)
}

// promised reports whether the plan has the bits of the control. A ring adds in
// an order that depends on what is reduced, and ranks that shard gradients walk
// other workers.
func promised(test, control *evidence.Run) bool {
	return test.Config.Plan.SameBits(control.Config.Plan, test.Config.Model)
}

// states compares the state after every step with the control's, or judges every
// step by itself where the plan does not promise that.
func states(p *contract.Pass, test, control *evidence.Run) {
	if !promised(test, control) {
		bounded.Judge(p, test, nil)
		return
	}
	for step := range test.Config.Steps {
		state(p, test, control, step)
	}
}

// pair reads the test run and its control: the same task on the same mesh,
// unsharded.
func pair(p *contract.Pass) (test, control *evidence.Run, ok bool) {
	test, ok = read(p, contract.Test)
	if !ok {
		return nil, nil, false
	}
	control, ok = evidence.Read(p, contract.Control)
	if !ok {
		return nil, nil, false
	}
	if err := evidence.SameTask(test, control); err != nil {
		p.Doubt("%v", err)
		return nil, nil, false
	}
	if c := control.Config.Plan; c.Zero != 0 || c.Dims() != test.Config.Plan.Dims() || control.Workers != test.Workers {
		p.Doubt("the control's plan is %s: want that of %s without sharding", c, test.Config.Plan)
		return nil, nil, false
	}
	return test, control, true
}

// workers compares one logical worker's gradients before any sum over workers:
// a difference here is of the computation, not of the sharding.
func workers(p *contract.Pass, test, control *evidence.Run, step, w int) {
	for _, t := range test.Sources {
		p.Expect(1)
		got, ok := total(test, everyone(test), step, trace.WorkerGrad, t.Name, w)
		want, has := total(control, everyone(control), step, trace.WorkerGrad, t.Name, w)
		if !ok || !has || got.Count < want.Count {
			continue
		}
		p.Saw(1)
		if !evidence.Same(got, want) {
			p.Report(test.Fill(contract.Finding{Rank: got.Rank, Step: step, Tensor: t.Name,
				Message: fmt.Sprintf("the gradient of logical worker %d, before any reduction, is not the unsharded run's", w)}, got, want))
		}
	}
}

// state compares gradients, weights and moments: the shards of all ranks added
// up with the control's copy. Shards that are not all recorded cannot be judged.
func state(p *contract.Pass, test, control *evidence.Run, step int) {
	for _, what := range append([]string{trace.Grad}, test.State()...) {
		for _, t := range test.Params {
			p.Expect(1)
			got, ok := test.Logical(step, what, t.Name, 0)
			want, has := control.Logical(step, what, t.Name, 0)
			if !ok || !has || got.Count < want.Count {
				continue
			}
			p.Saw(1)
			if !evidence.Same(got, want) {
				p.Report(test.Fill(contract.Finding{Rank: soleHolder(test, step, what, t.Name), Step: step, Tensor: t.Name,
					Message: fmt.Sprintf("%s, its shards added up, is not the unsharded run's", what)}, got, want))
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
// unsharded.
func scalars(p *contract.Pass, test, control *evidence.Run, step, rank int, whats []string) {
	for _, what := range whats {
		if what == trace.Loss && !lastStage(test, rank) {
			continue
		}
		p.Expect(1)
		got, ok := test.Scalar(rank, step, what)
		want, has := control.Scalar(rank, step, what)
		if !ok || !has {
			continue
		}
		p.Saw(1)
		if got.Value != want.Value || got.Bits != want.Bits { // NaN differs from NaN
			p.Report(contract.Finding{Rank: rank, Step: step, Index: -1, Got: fmt.Sprint(float64(got.Value)), Want: fmt.Sprint(float64(want.Value)),
				Message: fmt.Sprintf("%s of rank %d is not the unsharded run's", what, rank)})
		}
	}
}

// lastStage reports whether a rank has the loss.
func lastStage(r *evidence.Run, rank int) bool {
	dims := r.Config.Plan.Dims()
	return dims.Coord(rank).PP == dims.PP-1
}

func everyone(r *evidence.Run) []int {
	out := make([]int, r.Header.World)
	for i := range out {
		out[i] = i
	}
	return out
}

// total adds up what the given ranks recorded of a tensor, replicas included;
// the event has the first of these ranks.
func total(r *evidence.Run, ranks []int, step int, what, tensor string, worker int) (sum trace.Event, ok bool) {
	for _, rank := range ranks {
		e, has := r.Digest(rank, step, what, tensor, worker)
		if !has {
			continue
		}
		if !ok {
			sum, ok = e, true
			d := *e.Digest
			sum.Digest, sum.Data = &d, nil
			continue
		}
		sum.Digest.Add(*e.Digest)
		sum.Count += e.Count
	}
	return sum, ok
}
