package ddp

import (
	"fmt"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// pair reads the test and control runs of one task.
func pair(p *contract.Pass) (test, control *evidence.Run, ok bool) {
	test, ok = read(p, contract.Test)
	if !ok {
		return nil, nil, false
	}
	control, ok = read(p, contract.Control)
	if !ok {
		return nil, nil, false
	}
	if err := evidence.SameTask(test, control); err != nil {
		p.Doubt("%v", err)
		return nil, nil, false
	}
	if control.Header.World != 1 {
		p.Doubt("the control run has %d ranks, not one", control.Header.World)
		return nil, nil, false
	}
	return test, control, true
}

// single is clause 4: the result is that of the single worker on the same
// global batch; where the plan does not promise its bits, every step is judged
// from the plan's own weights.
func single(p *contract.Pass) {
	test, control, ok := pair(p)
	if !ok {
		return
	}
	if !test.Exact() {
		bounded(p, test)
		return
	}
	for step := range test.Config.Steps {
		for w := range test.Workers {
			if test.Busy(w) {
				workers(p, test, control, step, w)
			}
		}
		for _, what := range append([]string{trace.Grad}, test.State()...) {
			for _, t := range test.Params {
				equal(p, test, control, step, what, t)
			}
		}
		for _, what := range []string{trace.Loss, trace.Norm, trace.Coef, trace.LR} {
			scalars(p, test, control, step, what)
		}
	}
}

// workers compares one logical worker's gradients, before any sum over workers:
// a difference here is of the computation, not of the communication.
func workers(p *contract.Pass, test, control *evidence.Run, step, w int) {
	owner := test.Owner(w)
	for _, t := range test.Sources {
		p.Expect(1)
		got, ok := test.Digest(owner, step, trace.WorkerGrad, t.Name, w)
		want, has := control.Digest(0, step, trace.WorkerGrad, t.Name, w)
		if !ok || !has {
			continue
		}
		p.Saw(1)
		if !evidence.Same(got, want) {
			p.Report(test.Fill(contract.Finding{Rank: owner, Step: step, Tensor: t.Name,
				Message: fmt.Sprintf("the gradient of logical worker %d, before any reduction, differs from the single worker's", w)}, got, want))
		}
	}
}

// equal compares every rank's copy of a tensor with the control's.
func equal(p *contract.Pass, test, control *evidence.Run, step int, what string, t evidence.Tensor) {
	want, has := control.Logical(step, what, t.Name, 0)
	p.Expect(test.Header.World)
	for rank := range test.Header.World {
		got, ok := test.Digest(rank, step, what, t.Name, 0)
		if !ok || !has {
			continue
		}
		p.Saw(1)
		if !evidence.Same(got, want) {
			p.Report(test.Fill(contract.Finding{Rank: rank, Step: step, Tensor: t.Name,
				Message: fmt.Sprintf("%s of rank %d differs from the single worker's", what, rank)}, got, want))
		}
	}
}

// scalars compares a scalar of every rank with the control's.
func scalars(p *contract.Pass, test, control *evidence.Run, step int, what string) {
	want, has := control.Scalar(0, step, what)
	p.Expect(test.Header.World)
	for rank := range test.Header.World {
		got, ok := test.Scalar(rank, step, what)
		if !ok || !has {
			continue
		}
		p.Saw(1)
		if got.Value != want.Value || got.Bits != want.Bits { // NaN differs from NaN
			p.Report(contract.Finding{Rank: rank, Step: step, Index: -1, Got: fmt.Sprint(float64(got.Value)), Want: fmt.Sprint(float64(want.Value)),
				Message: fmt.Sprintf("%s of rank %d differs from the single worker's", what, rank)})
		}
	}
}
