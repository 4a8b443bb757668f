package ddp

import (
	"fmt"
	"math"
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// bounded is clause 4 where the plan does not promise the single worker's bits:
// each step by itself, from the plan's own weights. The reduced gradient lies
// within the bound of any order of summation, and the update is bit for bit the
// optimizer's, given that gradient.
func bounded(p *contract.Pass, r *evidence.Run) {
	if !r.Config.Evidence.Capture {
		p.Doubt("plan %s is judged by a bound, which needs the elements: record the run with evidence.capture", r.Config.Plan)
		return
	}
	for step := range r.Config.Steps {
		for rank := range r.Header.World {
			p.Expect(len(r.Params) * (1 + len(r.State())))
			s, ok := captured(r, rank, step)
			if !ok {
				continue
			}
			if err := s.judgeGradient(p, r, step); err != nil {
				p.Doubt("%v", err)
				return
			}
			if err := s.judgeUpdate(p, r, step); err != nil {
				p.Doubt("%v", err)
				return
			}
		}
	}
}

// snapshot is what a rank captured of one step.
type snapshot struct {
	rank          int
	before, after contract.State
	grad          map[string][]float32
}

// captured collects the elements of a step; a missing one is missing evidence.
func captured(r *evidence.Run, rank, step int) (s snapshot, ok bool) {
	s = snapshot{rank: rank, before: contract.State{}, after: contract.State{}}
	for _, what := range r.State() {
		if s.before[what], ok = elements(r, rank, step-1, what); !ok {
			return s, false
		}
		if s.after[what], ok = elements(r, rank, step, what); !ok {
			return s, false
		}
	}
	s.grad, ok = elements(r, rank, step, trace.Grad)
	return s, ok
}

func elements(r *evidence.Run, rank, step int, what string) (map[string][]float32, bool) {
	out := map[string][]float32{}
	for _, t := range r.Params {
		e, ok := r.Digest(rank, step, what, t.Name, 0)
		if !ok || int64(len(e.Data)) != t.Len {
			return nil, false
		}
		out[t.Name] = e.Data
	}
	return out, true
}

// update recomputes the optimizer's step.
func (s snapshot) update(p *contract.Pass, r *evidence.Run, step int) (contract.State, error) {
	if p.Oracle == nil {
		return nil, fmt.Errorf("no oracle to recompute the update with")
	}
	taken := step
	if step > 0 {
		e, ok := r.Scalar(s.rank, step-1, trace.Counter)
		if !ok {
			return nil, fmt.Errorf("rank %d did not record its number of optimizer steps before step %d", s.rank, step)
		}
		taken = int(e.Value)
	}
	return p.Oracle.Update(r.Header.Spec, taken, s.before, s.grad)
}

// judgeGradient holds the reduced gradient against the exact one.
func (s snapshot) judgeGradient(p *contract.Pass, r *evidence.Run, step int) error {
	if p.Oracle == nil {
		return fmt.Errorf("no oracle to judge the gradient by")
	}
	want, err := p.Oracle.Gradient(r.Header.Spec, step, s.before[trace.Weight])
	if err != nil {
		return err
	}
	if e, ok := r.Scalar(s.rank, step, trace.Loss); ok && len(want[trace.Loss].Value) == 1 {
		if f, bad := worst(p, []float32{float32(e.Value)}, want[trace.Loss]); bad {
			f.Rank, f.Step, f.Index = s.rank, step, -1
			f.Message = fmt.Sprintf("the loss of rank %d lies outside the bound of any order of summation", s.rank)
			p.Report(f)
		}
	}
	for _, t := range r.Params {
		b, g := want[t.Name], s.grad[t.Name]
		if len(b.Value) != len(g) || len(b.Bound) != len(g) {
			return fmt.Errorf("the oracle has %d elements of %s, the run %d", len(b.Value), t.Name, len(g))
		}
		p.Saw(1)
		if f, bad := worst(p, g, b); bad {
			f.Rank, f.Step, f.Tensor = s.rank, step, t.Name
			f.Message = fmt.Sprintf("the reduced gradient of rank %d lies outside the bound of any order of summation", s.rank)
			p.Report(f)
		}
	}
	return nil
}

// worst finds the element with the largest error relative to its bound, and
// whether the error exceeds it.
func worst(p *contract.Pass, got []float32, want contract.Bounded) (f contract.Finding, bad bool) {
	most, at := -1.0, 0
	for i, x := range got {
		diff := math.Abs(float64(x) - want.Value[i])
		ratio := diff / want.Bound[i]
		switch {
		case diff == 0:
			ratio = 0
		case math.IsNaN(diff):
			ratio = math.Inf(1)
		}
		if ratio > most {
			most, at = ratio, i
		}
	}
	if len(got) == 0 {
		return f, false
	}
	if i := slices.IndexFunc(want.Bound, func(b float64) bool { return !(b <= math.MaxFloat64) }); i >= 0 {
		p.Doubt("the oracle bounds no more than %v for element %d: nothing is proved", want.Bound[i], i)
		return f, false
	}
	p.Ratio(most)
	return contract.Finding{Index: int64(at), Got: fmt.Sprint(got[at]), Want: fmt.Sprint(want.Value[at]),
		Bound: fmt.Sprintf("%.3g of %.3g = gamma_n times the sum of magnitudes", most, want.Bound[at])}, most > 1
}

// judgeUpdate holds weights and moments after the step against the recomputed
// ones, bit for bit.
func (s snapshot) judgeUpdate(p *contract.Pass, r *evidence.Run, step int) error {
	next, err := s.update(p, r, step)
	if err != nil {
		return err
	}
	for _, what := range r.State() {
		for _, t := range r.Params {
			p.Saw(1)
			got, want := s.after[what][t.Name], next[what][t.Name]
			if i := differs(got, want); i >= 0 {
				p.Report(contract.Finding{Rank: s.rank, Step: step, Tensor: t.Name, Index: int64(i),
					Got: evidence.Bits(kernels.Bits(got[i])), Want: evidence.Bits(kernels.Bits(want[i])),
					Message: fmt.Sprintf("%s of rank %d is not what the optimizer makes of its reduced gradient", what, s.rank)})
			}
		}
	}
	return nil
}

func differs(a, b []float32) int {
	for i := range a {
		if kernels.Bits(a[i]) != kernels.Bits(b[i]) {
			return i
		}
	}
	return -1
}
