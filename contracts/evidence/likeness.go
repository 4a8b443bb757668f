package evidence

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Quotient is a/b for a finding: 0 where that says nothing.
func Quotient(a, b float64) trace.Float {
	if q := a / b; a != 0 && b != 0 && !math.IsNaN(q) && !math.IsInf(q, 0) {
		return trace.Float(q)
	}
	return 0
}

// squares is the sum of squares of what a digest covers; 0 where it is not known.
func squares(e trace.Event) float64 {
	if e.Squares != 0 || len(e.Data) == 0 {
		return float64(e.Squares)
	}
	var sum float64
	for _, x := range e.Data {
		sum += float64(float64(x) * float64(x))
	}
	return sum
}

// normRatio is the ratio of the norms of as many elements.
func normRatio(got, want trace.Event) trace.Float {
	if got.Count != want.Count {
		return 0
	}
	return trace.Float(math.Sqrt(float64(Quotient(squares(got), squares(want)))))
}

// like names what else of the run has what was got in place of want: another
// parameter, another slice of it, or the same one before the step. Where elements
// are not captured equal sums of squares tell.
func (r *Run) like(got, want trace.Event) string {
	q := squares(got)
	switch {
	case q == 0 && squares(want) > 0:
		return "zero in every element"
	case got.Kind != trace.KindDigest || got.Digest == nil || q == 0 || math.IsNaN(q) || math.IsInf(q, 0):
		return ""
	}
	var found []trace.Event
	for k, e := range r.digests {
		before := k.tensor == got.Tensor && k.step == got.Step-1
		if k.what != got.What || e.Count != got.Count || k.worker != got.Worker || !before && k.step != got.Step {
			continue
		}
		copied := k.tensor == got.Tensor && (*e.Digest == *got.Digest || k.rank == got.Rank)
		if !before && copied || !alike(e, got) {
			continue // a replica, or the tensor itself
		}
		found = append(found, e)
	}
	if len(found) == 0 {
		return ""
	}
	place := func(e trace.Event) int {
		return slices.IndexFunc(r.Sources, func(t Tensor) bool { return t.Name == e.Tensor })
	}
	e := slices.MinFunc(found, func(a, b trace.Event) int {
		return cmp.Or(cmp.Compare(a.Step, b.Step), cmp.Compare(a.Rank, b.Rank), cmp.Compare(place(a), place(b)))
	})
	how := "equal to"
	if len(got.Data) == 0 || len(e.Data) == 0 {
		how = "by its norm"
	}
	if e.Step != got.Step {
		when := fmt.Sprintf("after step %d", e.Step)
		if e.Step < 0 {
			when = "at the start"
		}
		return fmt.Sprintf("%s what rank %d had %s", how, e.Rank, when)
	}
	return fmt.Sprintf("%s %s of rank %d", how, e.Tensor, e.Rank)
}

// alike reports whether two digests cover equal elements in the same order, by their
// sums of squares where elements are not captured.
func alike(a, b trace.Event) bool {
	if len(a.Data) > 0 && len(b.Data) > 0 {
		return slices.EqualFunc(a.Data, b.Data, func(x, y float32) bool { return kernels.Bits(x) == kernels.Bits(y) })
	}
	return squares(a) == squares(b)
}
