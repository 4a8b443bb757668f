package evidence

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Dissent finds the copies that differ from the others: the reference is the
// value that most ranks hold (of equally many, the one that the lowest rank
// holds), and out lists the other ranks, ascending. The events are by rank.
func Dissent(copies map[int]trace.Event) (ref int, out []int) {
	ranks := slices.Sorted(maps.Keys(copies))
	votes := -1
	for _, r := range ranks {
		n := 0
		for _, q := range ranks {
			if Same(copies[r], copies[q]) {
				n++
			}
		}
		if n > votes {
			ref, votes = r, n
		}
	}
	for _, r := range ranks {
		if !Same(copies[ref], copies[r]) {
			out = append(out, r)
		}
	}
	return ref, out
}

// Bits writes a float32 as bits and as a decimal.
func Bits(b uint32) string {
	return fmt.Sprintf("0x%08x (%v)", b, math.Float32frombits(b))
}

// Fill completes a finding about got, which should have been want: the first
// element that differs where the runs captured elements, else what the ranks
// found when they descended to it, else the two digests; and the ratio of the norms,
// where both are recorded.
func (r *Run) Fill(f contract.Finding, got, want trace.Event) contract.Finding {
	f.Index = -1
	f.NormRatio = normRatio(got, want)
	if i := FirstDifference(got.Data, want.Data); i >= 0 {
		return element(f, i, got.Data, want.Data)
	}
	for e := range r.Events(f.Rank, trace.KindDiff) {
		if e.Step == f.Step && e.Tensor == f.Tensor && (e.What == "" || e.What == got.What) {
			f.Index, f.Got, f.Want = e.Index, Bits(e.Got), Bits(e.Want)
			f.Ratio = Quotient(float64(math.Float32frombits(e.Got)), float64(math.Float32frombits(e.Want)))
			return f
		}
	}
	f.Got, f.Want = digest(got), digest(want)
	return f
}

func element(f contract.Finding, i int, got, want []float32) contract.Finding {
	f.Index, f.Got, f.Want = int64(i), Bits(kernels.Bits(got[i])), Bits(kernels.Bits(want[i]))
	f.Ratio = Quotient(float64(got[i]), float64(want[i]))
	return f
}

// FirstDifference is the first element whose bits differ, of those that both
// have; -1 where there is none.
func FirstDifference(a, b []float32) int {
	for i := range min(len(a), len(b)) {
		if kernels.Bits(a[i]) != kernels.Bits(b[i]) {
			return i
		}
	}
	return -1
}

func digest(e trace.Event) string {
	if e.Digest == nil {
		return "no digest"
	}
	text, _ := e.Digest.MarshalText() // never fails
	s := fmt.Sprintf("digest %s of %d elements", text, e.Count)
	if q := squares(e); q > 0 {
		s += fmt.Sprintf(", norm %.6g", math.Sqrt(q))
	}
	return s
}

// With is a clause's check that is given the test run. Where that cannot be read
// the pass doubts.
func With(check func(*contract.Pass, *Run)) func(*contract.Pass) {
	return func(p *contract.Pass) {
		if r, ok := Read(p, contract.Test); ok {
			check(p, r)
		}
	}
}

// WithBoth is With for a check of the test run and that of another role.
func WithBoth(role contract.Role, check func(p *contract.Pass, test, other *Run)) func(*contract.Pass) {
	return With(func(p *contract.Pass, test *Run) {
		if other, ok := Read(p, role); ok {
			check(p, test, other)
		}
	})
}

// Compare expects one piece of evidence, found if ok: a digest, which must be the
// Same as want.
func (r *Run) Compare(at contract.At, ok bool, got, want trace.Event, format string, args ...any) {
	if at.Pass.Found(ok) && !Same(got, want) {
		r.Report(at, got, want, format, args...)
	}
}

// Report adds a finding about got, which should have been want, completed by
// Fill and, where another tensor has what was got, by its name. It is of the moment
// in which got arises.
func (r *Run) Report(at contract.At, got, want trace.Event, format string, args ...any) {
	f := r.finding(at, got, format, args...)
	at.Pass.ReportLater(f, func(f *contract.Finding) {
		*f = r.Fill(*f, got, want)
		f.Like = r.like(got, want)
	})
}

// finding is one about got, at its moment.
func (r *Run) finding(at contract.At, got trace.Event, format string, args ...any) contract.Finding {
	if got.Kind == "" {
		return at.Finding(nil, nil, format, args...)
	}
	return at.In(r.Moment(got)).Finding(nil, nil, format, args...)
}

// ReportElement adds a finding about element i of got, which should have had the
// bits of want.
func ReportElement(at contract.At, i int, got, want []float32, format string, args ...any) {
	f := element(at.Finding(nil, nil, format, args...), i, got, want)
	f.NormRatio = normRatio(trace.Event{Data: got}, trace.Event{Data: want})
	at.Pass.Report(f)
}

// SameScalar reports whether two scalars have the same bits, or are both NaN.
func SameScalar(a, b trace.Event) bool {
	return a.Value == b.Value && a.Bits == b.Bits || a.Value != a.Value && b.Value != b.Value
}

// CompareScalar expects one piece of evidence, found if ok: a scalar, which must
// have the bits of want, or be NaN as it is.
func (r *Run) CompareScalar(at contract.At, ok bool, got, want trace.Event, format string, args ...any) {
	if at.Pass.Found(ok) && !SameScalar(got, want) {
		f := r.finding(at, got, format, args...)
		f.Got, f.Want = fmt.Sprint(float64(got.Value)), fmt.Sprint(float64(want.Value))
		f.Ratio = Quotient(float64(got.Value), float64(want.Value))
		at.Pass.Report(f)
	}
}
