package norm

import (
	"fmt"
	"math"
	"math/big"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// agreed is clause 1: one norm and one coefficient on all ranks.
func agreed(p *contract.Pass, r *evidence.Run) {
	scaled(p, r)
	for step := r.First; step < r.Steps; step++ {
		var first []trace.Event // norm and coefficient of the first rank that recorded them
		for rank := range r.Header.World {
			p.Expect(2)
			norm, ok1 := r.Scalar(rank, step, trace.Norm)
			coef, ok2 := r.Scalar(rank, step, trace.Coef)
			if !ok1 || !ok2 {
				continue
			}
			p.Saw(2)
			if first == nil {
				first = []trace.Event{norm, coef}
			}
			check := func(what string, got, want trace.Float, why string) {
				if got, want := float64(got), float64(want); !equal(got, want) {
					p.At(rank, step).Report(got, want, "the %s of rank %d %s", what, rank, why)
				}
			}
			other := fmt.Sprintf("is not that of rank %d", first[0].Rank)
			check("norm", norm.Value, first[0].Value, other)
			check("coefficient", coef.Value, first[1].Value, other)
			check("coefficient", coef.Value, coefficient(norm.Value, r.Config.Optimizer.Clip), "does not follow from its norm")
		}
	}
}

// scaled is the part of clause 1 that looks at what a rank did with its coefficient:
// after the first step the first moment is the clipped gradient by the formula
//
//	AdamW: m = (1-beta1) * coef * g,
//
// element by element, so their norms have that ratio, of whatever part of a parameter
// a rank has both. Every element is rounded four times, and 1-beta1 is off by that of
// beta1; what underflows is less than 2^-147 an element.
func scaled(p *contract.Pass, r *evidence.Run) {
	o := r.Config.Optimizer
	for rank := range r.Header.World {
		coef, ok := r.Scalar(rank, 0, trace.Coef)
		if o.Name == "sgd" || !ok || !began(r, rank) {
			continue // whose momentum has the decay in it; or one that goes on from others
		}
		for _, t := range r.Sources {
			g, ok1 := r.Digest(rank, 0, trace.Grad, t.Name, 0)
			m, ok2 := r.Digest(rank, 0, trace.MomentM, t.Name, 0)
			if !ok1 || !ok2 || g.Count != m.Count || g.Squares <= 0 || !evidence.Finite(g) || !evidence.Finite(m) {
				continue
			}
			want := float64((1 - o.Beta1) * float64(coef.Value) * math.Sqrt(float64(g.Squares)))
			got := math.Sqrt(float64(m.Squares))
			bound := float64(want*(8+2/(1-o.Beta1))*0x1p-24) + float64(math.Sqrt(float64(g.Count))*0x1p-146)
			if math.Abs(got-want) > bound {
				f := p.At(rank, 0).Of(t.Name).In(contract.Update, 0).Finding(got/((1-o.Beta1)*math.Sqrt(float64(g.Squares))), float64(coef.Value),
					"rank %d did not apply the coefficient that it recorded to all of its gradient: by their norms the first moment is not 1-beta1 of the clipped gradient", rank)
				f.NormRatio = evidence.Quotient(got, want)
				p.Report(f)
			}
		}
	}
}

// began reports whether a rank took its first step in step 0, from moments of zero.
func began(r *evidence.Run, rank int) bool {
	for range r.Events(rank, trace.KindResume) {
		return false
	}
	after, ok := counter(r, rank, 0)
	return ok && after == 1
}

// equal is equality with NaN equal to itself.
func equal(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }

// coefficient brings a gradient of a norm down to clip; 0 clips nothing.
func coefficient(norm trace.Float, clip float64) trace.Float {
	if c := clip / (float64(norm) + 1e-6); clip > 0 && c < 1 {
		return trace.Float(c)
	}
	return 1
}

// measured is clause 2: the norm is that of the whole gradient.
func measured(p *contract.Pass, r, control *evidence.Run) {
	for step := r.First; step < r.Steps; step++ {
		if finite, known := finite(r, step); known && !finite {
			continue // of no norm
		}
		want, how, within, ok := norm(r, control, step)
		if x, has := squared(r, step); ok && has && !(math.Abs(x-want) <= x*0x1p-40) {
			p.Doubt("step %d: by the sums of squares beside its digests the gradient has norm %v, that of %s is %v: one of the records was changed", step, x, how, want)
		}
		for rank := range r.Header.World {
			got, has := r.Scalar(rank, step, trace.Norm)
			if x := float64(got.Value); p.Found(ok && has) && !(math.Abs(x-want) <= within) {
				f := p.At(rank, step).Finding(x, want, "the norm of rank %d is not that of %s", rank, how)
				f.Ratio = evidence.Quotient(x, want)
				p.Report(f)
			}
		}
	}
}

// finite reports whether every element of the reduced gradient of a step is
// finite; known is false where not all of it was recorded.
func finite(r *evidence.Run, step int) (finite, known bool) {
	finite, known = true, true
	for _, t := range r.Params {
		e, ok := r.Logical(step, trace.Grad, t.Name, 0)
		known = known && ok && e.Count == t.Len
		finite = finite && (!ok || evidence.Finite(e))
	}
	return finite, known || !finite
}

// norm is the norm that a step must have: of the elements that the test run or,
// if its gradient is the same, the control recorded; where neither did, the
// control's; of a gradient that no other run has, that of its own sums of squares.
// within is how far it may be off: those are rounded, one by one.
func norm(test, control *evidence.Run, step int) (x float64, how string, within float64, ok bool) {
	if g, ok := elements(test, step); ok {
		return root(g), "the gradient's elements", 0, true
	}
	for _, t := range test.Params {
		a, ok1 := test.Logical(step, trace.Grad, t.Name, 0)
		b, ok2 := control.Logical(step, trace.Grad, t.Name, 0)
		if !ok1 || !ok2 || !evidence.Same(a, b) {
			x, ok := squared(test, step)
			return x, "the sums of squares of its gradient", x * 0x1p-48, ok
		}
	}
	if g, ok := elements(control, step); ok {
		return root(g), "the elements of the gradient, which is the single worker's", 0, true
	}
	e, ok := control.Scalar(0, step, trace.Norm)
	return float64(e.Value), "the single worker, whose gradient it has", 0, ok
}

// squared is the norm by the sums of squares that stand beside digests; ok is false
// where they are not all there, or copies of the gradient differ: then there is no one
// norm that it must have.
func squared(r *evidence.Run, step int) (x float64, ok bool) {
	held, sum := r.Held(), 0.0
	for _, t := range r.Params {
		groups := evidence.BySlice(r.Copies(held[t.Name], step, trace.Grad, 0))
		for _, g := range groups {
			for _, c := range g {
				if !evidence.Same(c.Event, g[0].Event) {
					return 0, false
				}
			}
		}
		e := evidence.Whole(groups)
		if e.Count != t.Len {
			return 0, false
		}
		sum += float64(e.Squares)
	}
	return math.Sqrt(sum), sum > 0
}

// elements are those of the reduced gradient, each logical parameter once.
func elements(r *evidence.Run, step int) (map[string][]float32, bool) {
	out := map[string][]float32{}
	for _, t := range r.Params {
		e, ok := r.Logical(step, trace.Grad, t.Name, 0)
		if !ok || int64(len(e.Data)) != t.Len {
			return nil, false
		}
		out[t.Name] = e.Data
	}
	return out, true
}

// exactBits holds every sum of 2^64 squares of float32 values: from 2^-298 to
// below 2^320.
const exactBits = 320 + 298

// root is the square root of the exact sum of squares, rounded to float64 before
// and after the root.
func root(all map[string][]float32) float64 {
	sum, square := new(big.Float).SetPrec(exactBits), new(big.Float).SetPrec(64)
	for _, x := range all {
		for _, v := range x {
			square.SetFloat64(float64(v))
			sum.Add(sum, square.Mul(square, square))
		}
	}
	x, _ := sum.Float64()
	return math.Sqrt(x)
}
