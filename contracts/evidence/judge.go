package evidence

import (
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/trace"
)

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
// Fill.
func (r *Run) Report(at contract.At, got, want trace.Event, format string, args ...any) {
	at.Pass.Report(r.Fill(at.Finding(nil, nil, format, args...), got, want))
}

// ReportElement adds a finding about element i of got, which should have had the
// bits of want.
func ReportElement(at contract.At, i int, got, want []float32, format string, args ...any) {
	at.Pass.Report(element(at.Finding(nil, nil, format, args...), i, got, want))
}

// CompareScalar expects one piece of evidence, found if ok: a scalar, which must
// have the bits of want. NaN differs from NaN.
func CompareScalar(at contract.At, ok bool, got, want trace.Event, format string, args ...any) {
	if at.Pass.Found(ok) && (got.Value != want.Value || got.Bits != want.Bits) {
		at.Report(float64(got.Value), float64(want.Value), format, args...)
	}
}
