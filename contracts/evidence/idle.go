package evidence

import (
	"fmt"
	"math"

	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Idle says why states of a run prove nothing, "" where they do: a parameter that
// no recorded step moves although its gradient is not zero, in steps that were
// taken at a learning rate above zero. Copies, plans and resumptions of a
// parameter that stays as it is agree whatever happens. Parameters of which no
// two consecutive states, or no gradient, are recorded are not judged. An optimizer
// that scales its step by the gradient may leave a parameter as it is where that is
// tiny: there it proves nothing only where no parameter moves at all.
func (r *Run) Idle() string {
	held := r.Held()
	why, some := "", false
	for _, t := range r.Params {
		pairs, step := 0, -1 // steps before and after which the weights are known; one with a gradient
		moved := false
		for s := r.First; s < r.Steps && !moved; s++ {
			for rank := 0; rank < r.Header.World && !moved; rank++ {
				a, ok1 := r.Digest(rank, s-1, trace.Weight, t.Name, 0)
				b, ok2 := r.Digest(rank, s, trace.Weight, t.Name, 0)
				if !ok1 || !ok2 {
					continue
				}
				moved = !Same(a, b) || !Finite(b)
				pairs++
			}
			if step < 0 && !moved && r.pulled(held[t.Name], s) {
				step = s
			}
		}
		some = some || moved
		if why == "" && !moved && pairs > 0 && step >= 0 {
			why = fmt.Sprintf("no step moves %s, whose gradient of step %d is not zero: states that stay as they are agree whatever happens", t.Name, step)
		}
	}
	if scales := len(r.Moments()) == 1; some && scales {
		return ""
	}
	return why
}

// pulled reports whether a step must have moved the parameter that its holders, as
// Held lists them, share: taken, at a rate above zero, by a finite gradient that is
// not zero. Of gradients that are recorded in part it is not known.
func (r *Run) pulled(held []Holding, step int) bool {
	for _, c := range r.Copies(held, step, trace.Grad, 0) {
		lr, ok1 := r.Scalar(c.Rank, step, trace.LR)
		norm, ok2 := r.Scalar(c.Rank, step, trace.Norm)
		x := float64(norm.Value)
		if !ok1 || !ok2 || !(lr.Value > 0) || math.IsNaN(x) || math.IsInf(x, 0) {
			return false
		}
		if c.Complete() && Finite(c.Event) && (c.Param.Len() > manyElements || *c.Event.Digest != zeros(c.Holding)) {
			return true
		}
	}
	return false
}

// manyElements are too many for the digest of as many zeros, which takes as long as
// the elements are many, however little is recorded. So many are never all zero.
const manyElements = 1 << 26

// zeros is the digest of a holding all of whose elements are zero.
func zeros(h Holding) kernels.Digest {
	var d kernels.Digest
	h.Param.Places(shard.Range{Hi: h.Param.Len()}, func(_ shard.Range, rows, cols int, at kernels.Place) {
		for i := range rows {
			for j := range cols {
				a, b := kernels.Mix(h.Param.ID, at.First+uint64(i)*at.RowStride+uint64(j), 0)
				d.A, d.B = d.A+a, d.B+b
			}
		}
	})
	return d
}
