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
		want, how, ok := norm(r, control, step)
		for rank := range r.Header.World {
			got, has := r.Scalar(rank, step, trace.Norm)
			contract.Compare(p.At(rank, step), ok && has, float64(got.Value), want, "the norm of rank %d is not that of %s", rank, how)
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
// control's.
func norm(test, control *evidence.Run, step int) (x float64, how string, ok bool) {
	if g, ok := elements(test, step); ok {
		return root(g), "the gradient's elements", true
	}
	for _, t := range test.Params {
		a, ok1 := test.Logical(step, trace.Grad, t.Name, 0)
		b, ok2 := control.Logical(step, trace.Grad, t.Name, 0)
		if !ok1 || !ok2 || !evidence.Same(a, b) {
			return 0, "", false
		}
	}
	if g, ok := elements(control, step); ok {
		return root(g), "the elements of the gradient, which is the single worker's", true
	}
	e, ok := control.Scalar(0, step, trace.Norm)
	return float64(e.Value), "the single worker, whose gradient it has", ok
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
