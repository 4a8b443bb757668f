package formulas

import (
	"fmt"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/contracts/independent"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// subject is a run of one rank beside the formulas.
type subject struct {
	*contract.Pass
	run       *evidence.Run
	shape     independent.Shape
	params    []independent.Param
	optimizer independent.Optimizer
}

// with is a check of the test run. The pass doubts where that is of several ranks.
func with(check func(*subject)) func(*contract.Pass) {
	return evidence.With(func(p *contract.Pass, r *evidence.Run) {
		if n := r.Header.World; n != 1 {
			p.Doubt("a run of %d ranks: the formulas are held against runs of one rank, whose bits the other contracts ask of every plan", n)
			return
		}
		if why := lacks(p.Histories[contract.Test]); why != "" {
			p.Doubt("%s", why)
		}
		s := &subject{Pass: p, run: r, shape: shapeOf(r.Config), optimizer: optimizerOf(r)}
		if err := s.shape.Check(); err != nil {
			p.Doubt("%v", err)
			return
		}
		s.params = s.shape.Params()
		check(s)
	})
}

// lacks says that a run recorded no elements; empty where it did.
func lacks(h *trace.History) string {
	for e := range h.All {
		if e.Kind == trace.KindDigest && e.Data != nil {
			return ""
		}
	}
	return "the run recorded no elements, which take much room: the formulas are held against runs that verify makes"
}

// shapeOf is the configured model, field by field.
func shapeOf(cfg spec.Config) independent.Shape {
	m := cfg.Model
	return independent.Shape{Vocab: m.Vocab, Hidden: m.Hidden, Layers: m.Layers, Heads: m.Heads, KVHeads: m.KVHeads, HeadDim: m.HeadDim,
		Intermediate: m.Intermediate, SeqLen: m.SeqLen, Tied: m.Tied, QKVBias: m.QKVBias, LinearBias: m.LinearBias,
		NormEps: m.NormEps, RopeTheta: m.RopeTheta, InitStd: m.InitStd, InitBias: m.InitBias}
}

// optimizerOf is the configured optimizer, field by field.
func optimizerOf(r *evidence.Run) independent.Optimizer {
	o := r.Config.Optimizer
	return independent.Optimizer{Name: o.Name, LR: o.LR, Beta1: o.Beta1, Beta2: o.Beta2, Eps: o.Eps, Momentum: o.Momentum, Decay: o.Decay,
		Clip: o.Clip, Warmup: o.Warmup, Horizon: o.Horizon, MinLR: o.MinLR, Arithmetic: r.Header.Arithmetic}
}

// elements are the captured ones of a parameter after a step; nil where they are
// not all there.
func (s *subject) elements(step int, what string, p independent.Param) []float32 {
	e, ok := s.run.Logical(step, what, p.Name, 0)
	if !ok || len(e.Data) != p.Len() {
		return nil
	}
	return e.Data
}

// all are the captured elements of all parameters; ok is false where some lack.
func (s *subject) all(step int, what string) (out map[string][]float32, ok bool) {
	out, ok = map[string][]float32{}, true
	for _, p := range s.params {
		x := s.elements(step, what, p)
		out[p.Name], ok = x, ok && x != nil
	}
	return out, ok
}

// scalar is one that the rank recorded.
func (s *subject) scalar(step int, what string) (float64, bool) {
	e, ok := s.run.Scalar(0, step, what)
	return float64(e.Value), ok
}

// says is the widest bound, in parts of a tensor's largest magnitude, or of the largest
// term that cancels in it, that says something.
const says = 1e-3

// judge takes one tensor against its evaluation, in a phase of the step, as a piece
// of evidence.
func (s *subject) judge(step int, phase contract.Phase, j independent.Judged, message string) {
	s.Saw(1)
	s.Ratio(j.Ratio)
	switch {
	case j.Outside():
		at := s.At(0, step).Of(j.Name).In(phase, 0)
		f := at.Finding(j.Got, j.Want, "%s", message)
		f.Ratio, f.NormRatio = evidence.Quotient(float64(j.Got), j.Want), evidence.Quotient(j.NormRatio, 1)
		f.Index, f.Bound = int64(j.Index), fmt.Sprintf("%.3g of %.3g, by running error analysis", j.Ratio, j.Bound)
		if j.Index < 0 {
			f = at.Finding(j.Elements, nil, "%s: it has another number of elements", message)
		}
		s.Report(f)
	case !(j.Width <= says) && j.Ratio > 0: // what is equal to the last bit needs no bound
		s.Doubt("step %d, %s: the widest bound is %.2g of the largest value, or of the largest term that cancels: nothing is proved", step, j.Name, j.Width)
	}
}

// initial is clause 1.
func (s *subject) initial() {
	known := map[string]bool{}
	for _, p := range s.params {
		known[p.Name] = true
		got := s.elements(-1, trace.Weight, p)
		if !s.Found(got != nil) {
			continue
		}
		want := s.shape.Initial(p, s.run.Config.Seed)
		if i := evidence.FirstDifference(got, want); i >= 0 {
			evidence.ReportElement(s.At(0, -1).Of(p.Name), i, got, want, "the initial weights are not the generator's of seed %d", s.run.Config.Seed)
		}
	}
	for e := range s.run.In(-1, 0, trace.KindDigest) {
		if e.What == trace.Weight && !known[e.Tensor] {
			s.At(0, -1).Of(e.Tensor).Report(e.Tensor, nil, "the model has no parameter of this name")
		}
	}
}
