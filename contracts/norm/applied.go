package norm

import (
	"fmt"

	"github.com/lockstep-ml/lockstep/contracts/bounded"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/contracts/independent"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// applied is clause 6: what an update did is what the recorded coefficient and
// learning rate do. It reads the single worker, whose states the other ranks'
// are (clause 4).
func applied(p *contract.Pass, test, control *evidence.Run) {
	if !control.Config.Recording.Capture {
		p.Doubt("the control run did not record its elements")
		return
	}
	o, params, taken := optimizer(control), parameters(control), control.Taken
	for step := control.First; step < control.Steps; step++ {
		steps, known := finite(control, step)
		if !p.Found(known) {
			return
		}
		if !steps {
			continue // clause 3: nothing moves
		}
		for _, r := range []*evidence.Run{control, test} {
			for rank := range r.Header.World {
				lr, ok := r.Scalar(rank, step, trace.LR)
				if p.Found(ok) && !o.RateIs(taken, float64(lr.Value)) {
					p.At(rank, step).Report(float64(lr.Value), o.Rate(taken), "the learning rate of rank %d is not the schedule's after %d steps", rank, taken)
				}
			}
		}
		if !updated(p, control, o, params, step, taken) {
			return
		}
		taken++
	}
}

// optimizer is that of a run, read field by field.
func optimizer(r *evidence.Run) *independent.Optimizer {
	c := r.Config.Optimizer
	return &independent.Optimizer{Name: c.Name, LR: c.LR, Beta1: c.Beta1, Beta2: c.Beta2, Eps: c.Eps, Momentum: c.Momentum, Decay: c.Decay,
		Clip: c.Clip, Warmup: c.Warmup, Horizon: c.Horizon, MinLR: c.MinLR, Arithmetic: r.Header.Arithmetic}
}

// parameters are those of a run's model by name, with whether they decay.
func parameters(r *evidence.Run) map[string]independent.Param {
	c := r.Config.Model
	s := independent.Shape{Vocab: c.Vocab, Hidden: c.Hidden, Layers: c.Layers, Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim,
		Intermediate: c.Intermediate, SeqLen: c.SeqLen, Tied: c.Tied, QKVBias: c.QKVBias, LinearBias: c.LinearBias}
	out := map[string]independent.Param{}
	for _, q := range s.Params() {
		out[q.Name] = q
	}
	return out
}

// updated judges a step by the single worker's elements before and after it and
// the scalars that it recorded; it reports false where one of them is not there.
func updated(p *contract.Pass, r *evidence.Run, o *independent.Optimizer, params map[string]independent.Param, step, taken int) bool {
	lr, ok1 := r.Scalar(0, step, trace.LR)
	coef, ok2 := r.Scalar(0, step, trace.Coef)
	s, ok3 := bounded.Captured(r, bounded.Replicas(r)[0], step)
	if !p.Found(ok1 && ok2 && ok3) {
		return false
	}
	for _, t := range r.Params {
		var moments [][]float32
		for _, what := range r.Moments() {
			moments = append(moments, s.Before[what][t.Name])
		}
		w, m, err := o.Update(params[t.Name], s.Before[trace.Weight][t.Name], s.Grad[t.Name], moments, taken, float64(lr.Value), float64(coef.Value))
		if err != nil {
			p.Doubt("%v", err)
			return false
		}
		for i, want := range append([]independent.Bounded{w}, m...) {
			what := r.State()[i]
			j := want.Judge(t.Name, s.After[what][t.Name])
			p.Found(true)
			p.Ratio(j.Ratio)
			if j.Outside() {
				f := p.At(0, step).Of(t.Name).By(contract.Control).Finding(j.Got, j.Want,
					"%s of the single worker is not what the recorded coefficient %v and learning rate %v make of the gradient", what, float64(coef.Value), float64(lr.Value))
				f.Ratio, f.NormRatio = evidence.Quotient(float64(j.Got), j.Want), evidence.Quotient(j.NormRatio, 1)
				f.Index, f.Bound = int64(j.Index), fmt.Sprintf("%.3g of the bound %.3g of the float32 update's roundings", j.Ratio, j.Bound)
				p.Report(f)
			}
		}
	}
	return true
}
