package evidence

import (
	"fmt"
	"math"

	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// near is how far two sums of squares of the same elements may be apart, of which one
// was added up from rounded parts.
const near = 0x1p-40

// SameSquares reports whether two records of the same elements have the same sum of
// squares, where both have one.
func SameSquares(a, b trace.Event) bool {
	x, y := float64(a.Squares), float64(b.Squares)
	return !Finite(a) || !Finite(b) || math.Abs(x-y) <= float64(near*max(x, y))
}

// squared says of which digest the sum of squares is not that of its elements: not a
// number of finite ones, another than that of elements with the same digest or than that
// of the elements themselves, or none where others have one and not every element is 0.
func (r *Run) squared() string {
	type elements struct {
		tensor string
		count  int64
		digest kernels.Digest
	}
	seen, some := map[elements]trace.Event{}, false
	for e := range r.All {
		some = some || e.Kind == trace.KindDigest && e.Squares != 0
	}
	if !some {
		return "" // nobody wrote them
	}
	for e := range r.All {
		if e.Kind != trace.KindDigest || e.Digest == nil || !Finite(e) {
			continue
		}
		k := elements{e.Tensor, e.Count, *e.Digest}
		before, again := seen[k]
		seen[k] = e
		x := float64(e.Squares)
		title := fmt.Sprintf("the %s digest of %s of rank %d in step %d", e.What, e.Tensor, e.Rank, e.Step)
		switch {
		case math.IsNaN(x) || math.IsInf(x, 0):
			return fmt.Sprintf("%s is of finite elements, the sum of whose squares is %v", title, x)
		case again && !SameSquares(before, e):
			return fmt.Sprintf("%s has squares of %v, the equal one of rank %d in step %d (%s) %v", title, x, before.Rank, before.Step, before.What, float64(before.Squares))
		case len(e.Data) > 0 && !SameSquares(e, trace.Event{Squares: trace.Float(sumSquares(e.Data))}):
			return fmt.Sprintf("%s has squares of %v, its elements of %v", title, x, sumSquares(e.Data))
		case x == 0 && !again && e.Count > 0 && !r.zero(e):
			return fmt.Sprintf("%s has no squares, others have", title)
		}
	}
	return ""
}

func sumSquares(data []float32) (sum float64) {
	for _, v := range data {
		x := float64(v)
		sum += float64(x * x)
	}
	return sum
}

// zero reports whether a digest may be of zeros, of either sign: of part of a slice it
// is not known.
func (r *Run) zero(e trace.Event) bool {
	for _, h := range r.Held()[e.Tensor] {
		if h.Rank == e.Rank {
			return e.Count != int64(h.Param.Len()) || e.Count > manyElements || *e.Digest == zeros(h) || e.What == trace.WorkerGrad || e.What == trace.Grad
		}
	}
	return true
}
