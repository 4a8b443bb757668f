package ddp

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// finite is clause 7: no value anywhere is NaN or infinite; where one is, its
// first producer is named.
func finite(p *contract.Pass) {
	r, ok := subject.Read(p)
	if !ok {
		return
	}
	recorded(p, r)
	var bad []trace.Event
	for e := range r.All {
		switch {
		case e.Kind == trace.KindDigest && !evidence.Finite(e), e.Kind == trace.KindSkip:
			bad = append(bad, e)
		case e.Kind == trace.KindScalar && e.What == trace.Loss:
			if x := float64(e.Value); math.IsNaN(x) || math.IsInf(x, 0) {
				bad = append(bad, e)
			}
		}
	}
	if len(bad) > 0 {
		producer(p, bad)
	}
}

// recorded counts what there is to be seen: the initial state once; per step the
// state, the reduced gradient, every busy worker's gradients, and the loss on the
// last stage.
func recorded(p *contract.Pass, r *evidence.Run) {
	held := r.Held()
	see := func(step int, what, tensor string, worker int) {
		n, complete := r.Records(held[tensor], what), 0
		for _, c := range r.Copies(held[tensor], step, what, worker) {
			if c.Complete() {
				complete++
			}
		}
		p.Expect(n)
		p.Saw(min(n, complete))
	}
	for step := -1; step < r.Config.Steps; step++ {
		for _, t := range r.Params {
			for _, what := range r.State() {
				see(step, what, t.Name, 0)
			}
			if step >= 0 {
				see(step, trace.Grad, t.Name, 0)
			}
		}
		if step < 0 {
			continue
		}
		for _, t := range r.Sources {
			for w := range r.Workers {
				if r.Busy(w) && r.Config.Evidence.Workers {
					see(step, trace.WorkerGrad, t.Name, w)
				}
			}
		}
		for rank := range r.Header.World {
			if r.At(rank).PP == r.Config.Plan.PP-1 {
				p.Expect(1)
				if _, ok := r.Scalar(rank, step, trace.Loss); ok {
					p.Saw(1)
				}
			}
		}
	}
}

// producer reports the first of the events that show a value that is not
// finite: in time, and within a step in the order of the computation.
func producer(p *contract.Pass, bad []trace.Event) {
	slices.SortStableFunc(bad, func(a, b trace.Event) int {
		return cmp.Or(cmp.Compare(a.Step, b.Step), cmp.Compare(stage(a), stage(b)), cmp.Compare(a.Rank, b.Rank))
	})
	first := bad[0]
	f := contract.Finding{Rank: first.Rank, Step: first.Step, Tensor: first.Tensor, Index: -1, Want: "finite"}
	switch {
	case first.Kind == trace.KindSkip:
		f.Message = fmt.Sprintf("rank %d took no step: %s", first.Rank, first.Text)
	case first.Kind == trace.KindScalar:
		f.Got = fmt.Sprint(float64(first.Value))
		f.Message = fmt.Sprintf("the %s is not finite", first.What)
	case first.What == trace.WorkerGrad:
		f.Message = fmt.Sprintf("logical worker %d on rank %d is the first producer of values that are not finite: its gradient, before any sum over workers", first.Worker, first.Rank)
	default:
		f.Message = fmt.Sprintf("rank %d is the first producer of values that are not finite, in the %s", first.Rank, first.What)
	}
	if first.Digest != nil {
		f.Got = fmt.Sprintf("%d elements that are not finite", first.Digest.NonFinite)
		for i, x := range first.Data {
			if x-x != 0 {
				f.Index = int64(i)
				break
			}
		}
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
