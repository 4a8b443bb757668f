package ddp

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// finite is clause 7: no value anywhere is NaN or infinite; where one is, its
// first producer is named.
func finite(p *contract.Pass, r *evidence.Run) {
	recorded(p, r)
	var bad []trace.Event
	for e := range r.All {
		lost := e.Kind == trace.KindScalar && e.What == trace.Loss && e.Value-e.Value != 0
		if lost || e.Kind == trace.KindDigest && !evidence.Finite(e) || e.Kind == trace.KindSkip {
			bad = append(bad, e)
		}
	}
	if len(bad) > 0 {
		producer(p, r, bad)
	}
}

// recorded counts what there is to be seen: the initial state once; per step the
// state, the reduced gradient, every busy worker's gradients, and the loss on the
// last stage.
func recorded(p *contract.Pass, r *evidence.Run) {
	held := r.Held()
	see := func(step int, what string, tensors []evidence.Tensor, worker int) {
		for _, t := range tensors {
			copies := r.Copies(held[t.Name], step, what, worker)
			complete := slices.DeleteFunc(copies, func(c evidence.Copy) bool { return !c.Complete() })
			p.Count(r.Records(held[t.Name], what), len(complete))
		}
	}
	for _, what := range r.State() {
		see(r.First-1, what, r.Params, 0)
	}
	for step := r.First; step < r.Steps; step++ {
		for _, what := range append(r.State(), trace.Grad) {
			see(step, what, r.Params, 0)
		}
		for w := range r.Graded() {
			see(step, trace.WorkerGrad, r.Sources, w)
		}
		for rank := range r.Header.World {
			if r.LastStage(rank) {
				_, ok := r.Scalar(rank, step, trace.Loss)
				p.Found(ok)
			}
		}
	}
}

// producer reports the first of the events that show a value that is not
// finite: in time, and within a step in the order of the computation.
func producer(p *contract.Pass, r *evidence.Run, bad []trace.Event) {
	slices.SortStableFunc(bad, func(a, b trace.Event) int {
		return cmp.Or(cmp.Compare(a.Step, b.Step), cmp.Compare(stage(a), stage(b)), cmp.Compare(a.Rank, b.Rank))
	})
	first := bad[0]
	f := p.At(first.Rank, first.Step).Of(first.Tensor).In(r.Moment(first)).Finding(nil, "finite",
		"rank %d is the first producer of values that are not finite, in the %s", first.Rank, first.What)
	switch {
	case first.Kind == trace.KindSkip:
		f.Message = fmt.Sprintf("rank %d took no step: %s", first.Rank, first.Text)
	case first.Kind == trace.KindScalar:
		f.Got = fmt.Sprint(float64(first.Value))
		f.Message = fmt.Sprintf("the %s is not finite", first.What)
	case first.What == trace.WorkerGrad:
		f.Message = fmt.Sprintf("logical worker %d on rank %d is the first producer of values that are not finite: its gradient, before any sum over workers", first.Worker, first.Rank)
		if slices.ContainsFunc(bad, func(e trace.Event) bool { return e.Kind == trace.KindScalar && e.Step == first.Step }) {
			f.Message += fmt.Sprintf("; the loss of the step is not finite either, so the forward pass made them, of weights that were finite after step %d", first.Step-1)
		}
	}
	if first.Digest != nil {
		f.Got = fmt.Sprintf("%d elements that are not finite", first.Digest.NonFinite)
		f.Index = int64(slices.IndexFunc(first.Data, func(x float32) bool { return x-x != 0 }))
	}
	p.Report(f)
}

// stage orders the evidence of a step as it is computed.
func stage(e trace.Event) int {
	switch {
	case e.Kind == trace.KindSkip:
		return 3
	case e.Kind == trace.KindScalar || e.What == trace.Grad:
		return 1
	case e.What == trace.WorkerGrad:
		return 0
	}
	return 2
}
