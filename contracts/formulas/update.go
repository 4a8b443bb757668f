package formulas

import (
	"fmt"
	"math"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/independent"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// taken is a step that the optimizer takes, with what it must apply.
type taken struct {
	step, before int // steps taken before it
	grads        map[string][]float32
	norm, coef   float64
}

// each calls judge for every step, with expect pieces of evidence each; a step whose
// gradient has elements missing is not judged. The pass doubts, and ends, at one
// whose gradient is not finite.
func (s *subject) each(expect int, judge func(taken)) {
	before := s.run.Taken
	for step := s.run.First; step < s.run.Steps; step++ {
		s.Expect(expect)
		grads, ok := s.all(step, trace.Grad)
		if !ok {
			return
		}
		norm := independent.Norm(grads)
		if math.IsNaN(norm) || math.IsInf(norm, 0) {
			s.Doubt("step %d: the gradient is not finite: C-NORM-001 judges what follows", step)
			return
		}
		judge(taken{step, before, grads, norm, s.optimizer.Coefficient(norm)})
		before++
	}
}

// recorded is clause 3.
func (s *subject) recorded() {
	s.each(4, func(t taken) {
		is := func(what string, want float64, right func(float64) bool, why string) {
			got, ok := s.scalar(t.step, what)
			if !ok {
				return
			}
			if s.Saw(1); !right(got) {
				phase := contract.Norm
				if what == trace.LR || what == trace.Counter {
					phase = contract.Update
				}
				s.At(0, t.step).Of(what).In(phase, 0).Report(got, want, "%s", why)
			}
		}
		is(trace.Norm, t.norm, func(x float64) bool { return independent.NormIs(t.grads, x) }, "the norm is not that of the gradient's elements")
		is(trace.Coef, t.coef, func(x float64) bool { return math.Abs(x-t.coef) <= (0x1p-48+4*0x1p-53)*t.coef },
			fmt.Sprintf("the coefficient is not that of the norm %v and clip %v", t.norm, s.optimizer.Clip))
		is(trace.LR, s.optimizer.Rate(t.before), func(x float64) bool { return s.optimizer.RateIs(t.before, x) },
			fmt.Sprintf("the learning rate is not that after %d steps", t.before))
		is(trace.Counter, float64(t.before+1), func(x float64) bool { return x == float64(t.before+1) }, "the counter is not the number of steps taken")
	})
}

// applied is clause 4.
func (s *subject) applied() {
	kinds := append([]string{trace.Weight}, s.optimizer.Moments()...)
	s.each(len(kinds)*len(s.params), func(t taken) {
		moved := false
		for _, p := range s.params {
			moved = s.update(t, p, kinds) || moved
		}
		if !moved {
			s.Doubt("step %d: the update moves nothing further than its bound: nothing is proved", t.step)
		}
	})
}

// update judges one parameter's update; moved says whether the formula moves some
// weight further than its bound or, where the rate has fallen to 0, some moment: weights
// that must stay as they are prove something beside moments that must not.
func (s *subject) update(t taken, p independent.Param, kinds []string) (moved bool) {
	var before, after [][]float32
	for _, kind := range kinds {
		x, y := s.elements(t.step-1, kind, p), s.elements(t.step, kind, p)
		if x == nil || y == nil {
			return true // the evidence that lacks is counted
		}
		before, after = append(before, x), append(after, y)
	}
	w, moments, err := s.optimizer.Update(p, before[0], t.grads[p.Name], before[1:], t.before, s.optimizer.Rate(t.before), t.coef)
	if err != nil {
		s.Doubt("step %d: %v", t.step, err)
		return true
	}
	judge := func(kind int, x independent.Bounded) {
		s.judge(t.step, contract.Update, x.Judge(p.Name, after[kind]), fmt.Sprintf("%s after the step is not what %s makes of what was before it, by rate %v and coefficient %v",
			kinds[kind], s.optimizer.Name, s.optimizer.Rate(t.before), t.coef))
	}
	// Moments first, as they arise: a wrong one makes the weight wrong too.
	for i, x := range moments {
		judge(1+i, x)
	}
	judge(0, w)
	further := func(x independent.Bounded, from []float32) bool {
		for i, f := range from {
			if math.Abs(x.Value[i]-float64(f)) > x.Bound[i] {
				return true
			}
		}
		return false
	}
	moved = further(w, before[0])
	for i, x := range moments {
		moved = moved || s.optimizer.RateIs(t.before, 0) && further(x, before[1+i])
	}
	return moved
}
