// Package bounded judges runs whose bits nothing promises: each step by itself,
// from the run's own weights, so that no error is carried on.
package bounded

import (
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// OrBound marks a clause that is judged by Judge where the plan does not promise
// bits.
func OrBound(c *contract.Clause) *contract.Clause {
	c.Derivation = derivation
	return c
}

// derivation is the bound, in words.
const derivation = "A gradient is a sum over tokens whose terms have the same bits on every plan, given the weights. " +
	"Any order of n float32 additions errs by at most gamma_n = n*u/(1-n*u) times the sum of the magnitudes of the terms, u = 2^-24 " +
	"(Higham, Accuracy and Stability of Numerical Algorithms, section 4.2); n is the number of tokens plus that of workers, ranks and gradient sources. " +
	"Terms, sum and magnitudes are computed in float64 at the plan's own weights, each step by itself. The update is exact, given that gradient."

// Judge holds every step of a run against the oracle: the reduced gradient of
// the named parameters (nil is all) and the loss lie within the bound of any
// order of summation, the update is bit for bit the optimizer's, given that
// gradient, and copies of one slice are equal. The pass doubts where the run has
// no elements or the bounds say nothing.
func Judge(p *contract.Pass, r *evidence.Run, names func(string) bool) {
	if !r.Config.Recording.Capture {
		p.Doubt("plan %s is judged by a bound, which needs the elements: record the run with evidence.capture", r.Config.Plan)
		return
	}
	params := evidence.Named(r.Params, names)
	replicas := Replicas(r)
	var ahead sync.WaitGroup
	defer ahead.Wait()
	for step := r.First; step < r.Steps; step++ {
		for i, m := range replicas {
			p.Expect(len(params) * (1 + len(r.State())))
			s, ok := Captured(r, m, step)
			if !ok {
				continue
			}
			if i == 0 && step+1 < r.Steps && p.Oracle != nil {
				ahead.Go(func() { ask(p.Oracle, r.Config, step+1, s.After[trace.Weight]) })
			}
			s.agree(p, r, step, params)
			err := s.judgeGradient(p, r, step, params)
			if err == nil {
				err = s.judgeUpdate(p, r, step, params)
			}
			if err != nil {
				p.Doubt("%v", err)
				return
			}
		}
	}
}

// ask has an oracle find an answer that will be needed: it takes long and is
// kept. Whatever comes of it, a panic too, comes of the question itself.
func ask(o contract.Oracle, cfg spec.Config, step int, weights map[string][]float32) {
	defer func() { _ = recover() }()
	_, _ = o.Gradient(cfg, step, weights)
}

// agree compares the copies of one slice within a replica, of which the oracle
// judges the first.
func (s *Snapshot) agree(p *contract.Pass, r *evidence.Run, step int, params []evidence.Tensor) {
	for _, what := range append([]string{trace.Grad}, r.State()...) {
		for _, t := range params {
			for _, slice := range evidence.BySlice(r.Copies(s.Held[t.Name], step, what, 0)) {
				copies := map[int]trace.Event{}
				for _, c := range slice {
					copies[c.Rank] = c.Event
				}
				Dissent(p, r, step, what, copies)
			}
		}
	}
}

// judgeGradient holds the reduced gradient, and the loss, against the exact
// ones.
func (s *Snapshot) judgeGradient(p *contract.Pass, r *evidence.Run, step int, params []evidence.Tensor) error {
	if p.Oracle == nil {
		return fmt.Errorf("no oracle to judge the gradient by")
	}
	want, err := p.Oracle.Gradient(r.Config, step, s.Before[trace.Weight])
	if err != nil {
		return err
	}
	s.judgeLoss(p, r, step, want[trace.Loss])
	for _, t := range params {
		b, g := want[t.Name], s.Grad[t.Name]
		if len(b.Value) != len(g) || len(b.Bound) != len(g) {
			return fmt.Errorf("the oracle has %d elements of %s, the run %d", len(b.Value), t.Name, len(g))
		}
		p.Saw(1)
		if f, bad := worst(p, g, b); bad {
			f.Rank, f.Step, f.Tensor = s.holder(t.Name, f.Index), step, t.Name
			f.Phase = contract.Reduction
			f.Message = fmt.Sprintf("the reduced gradient of rank %d lies outside the bound of any order of summation", f.Rank)
			p.Report(f)
		}
	}
	return nil
}

// judgeLoss holds the loss of every rank that has it against the exact one, where
// the oracle has that.
func (s *Snapshot) judgeLoss(p *contract.Pass, r *evidence.Run, step int, want contract.Bounded) {
	if len(want.Value) != 1 || len(want.Bound) != 1 {
		return
	}
	for _, rank := range s.ranks {
		if !r.LastStage(rank) {
			continue
		}
		e, ok := r.Scalar(rank, step, trace.Loss)
		if !p.Found(ok) {
			continue
		}
		if f, bad := worst(p, []float32{float32(e.Value)}, want); bad {
			f.Rank, f.Step, f.Index = rank, step, -1
			f.Phase, f.Order = contract.Reduction, 1
			f.Message = fmt.Sprintf("the loss of rank %d lies outside the bound of any order of summation", rank)
			p.Report(f)
		}
	}
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
	var x, y float64
	for i, g := range got {
		x, y = x+float64(float64(g)*float64(g)), y+float64(want.Value[i]*want.Value[i])
	}
	return contract.Finding{Ratio: evidence.Quotient(float64(got[at]), want.Value[at]), NormRatio: evidence.Quotient(math.Sqrt(x), math.Sqrt(y)), Index: int64(at), Got: fmt.Sprint(got[at]), Want: fmt.Sprint(want.Value[at]),
		Bound: fmt.Sprintf("%.3g of %.3g = gamma_n times the sum of magnitudes", most, want.Bound[at])}, most > 1
}

// judgeUpdate holds weights and moments after the step against the recomputed
// ones, bit for bit.
func (s *Snapshot) judgeUpdate(p *contract.Pass, r *evidence.Run, step int, params []evidence.Tensor) error {
	next, err := s.Update(p, r, step)
	if err != nil {
		return err
	}
	for _, what := range r.State() {
		for _, t := range params {
			p.Saw(1)
			got, want := s.After[what][t.Name], next[what][t.Name]
			if i := evidence.FirstDifference(got, want); i >= 0 {
				rank := s.holder(t.Name, int64(i))
				evidence.ReportElement(p.At(rank, step).Of(t.Name).In(contract.Update, 0), i, got, want, "%s of rank %d is not what the optimizer makes of its reduced gradient", what, rank)
			}
		}
	}
	return nil
}

// Dissent reports the copies of one tensor, by rank, that differ from the others; what
// agrees in elements that are not finite is a doubt.
func Dissent(p *contract.Pass, r *evidence.Run, step int, what string, copies map[int]trace.Event) {
	ref, out := evidence.Dissent(copies)
	if len(copies) > len(out) {
		evidence.Lost(p, step, what, copies[ref])
	}
	for _, rank := range out {
		r.Report(p.At(rank, step).Of(copies[rank].Tensor), copies[rank], copies[ref],
			"%s of rank %d differs from that of rank %d (%d of %d ranks agree)", what, rank, ref, len(copies)-len(out), len(copies))
	}
}
