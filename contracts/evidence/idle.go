package evidence

import (
	"fmt"
	"math"

	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Idle says why states of a run prove nothing, "" where they do: a parameter that
// no recorded step moves although its gradient is not zero, in steps that were
// taken at a learning rate above zero. Copies, plans and resumptions of a
// parameter that stays as it is agree whatever happens. Parameters of which no
// two consecutive states, or no gradient, are recorded are not judged.
func (r *Run) Idle() string {
	for _, t := range r.Params {
		pairs, step := 0, -1 // steps before and after which the weights are known; one with a gradient
		moved := false
		for s := 0; s < r.Config.Steps && !moved; s++ {
			for rank := 0; rank < r.Header.World && !moved; rank++ {
				a, ok1 := r.Digest(rank, s-1, trace.Weight, t.Name, 0)
				b, ok2 := r.Digest(rank, s, trace.Weight, t.Name, 0)
				if !ok1 || !ok2 {
					continue
				}
				moved = !Same(a, b)
				if step < 0 && r.pulled(rank, s, t) {
					step = s
				}
				pairs++
			}
		}
		if !moved && pairs > 0 && step >= 0 {
			return fmt.Sprintf("no step moves %s, whose gradient of step %d is not zero: states that stay as they are agree whatever happens", t.Name, step)
		}
	}
	return ""
}

// pulled reports whether a rank recorded a step that must have moved what it has
// of a parameter: taken, at a rate above zero, by a finite gradient that is not
// zero.
func (r *Run) pulled(rank, step int, t Tensor) bool {
	lr, ok1 := r.Scalar(rank, step, trace.LR)
	norm, ok2 := r.Scalar(rank, step, trace.Norm)
	g, ok3 := r.Digest(rank, step, trace.Grad, t.Name, 0)
	x := float64(norm.Value)
	if !ok1 || !ok2 || !ok3 || !(lr.Value > 0) || math.IsNaN(x) || math.IsInf(x, 0) || g.Count == 0 || !Finite(g) {
		return false
	}
	if g.Count < t.Len {
		return true // of which elements is not known: a slice of zeros is not to be expected
	}
	var zero kernels.Digest
	id := kernels.TensorID(t.Name)
	for i := range t.Len {
		a, b := kernels.Mix(id, uint64(i), 0)
		zero.A, zero.B = zero.A+a, zero.B+b
	}
	return *g.Digest != zero
}
