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
	r, ok := read(p, contract.Test)
	if !ok {
		return
	}
	state, world := len(r.State())*len(r.Params), r.Header.World
	// Initial state once; per step the state, the reduced gradient and the loss
	// on every rank, and every busy worker's gradients on one.
	p.Expect(world * (state + r.Config.Steps*(state+len(r.Params)+1)))
	if r.Config.Evidence.Workers {
		p.Expect(r.Config.Steps * len(r.Sources) * min(r.Workers, r.Config.Sequences))
	}
	var bad []trace.Event
	for e := range r.All {
		switch {
		case e.Kind == trace.KindDigest && e.Digest != nil:
			p.Saw(1)
			if !evidence.Finite(e) {
				bad = append(bad, e)
			}
		case e.Kind == trace.KindScalar && e.What == trace.Loss:
			p.Saw(1)
			if x := float64(e.Value); math.IsNaN(x) || math.IsInf(x, 0) {
				bad = append(bad, e)
			}
		case e.Kind == trace.KindSkip:
			bad = append(bad, e)
		}
	}
	if len(bad) > 0 {
		producer(p, bad)
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
