package contract

import "fmt"

// At is what a finding is about: a world rank (-1 where none is to blame), a
// step and, where there is one, a tensor.
type At struct {
	Pass       *Pass
	Rank, Step int
	Tensor     string

	phase       Phase
	against, of Role
	order       int
}

// At is a rank in a step (-1 before the first).
func (p *Pass) At(rank, step int) At { return At{Pass: p, Rank: rank, Step: step} }

// Of is a tensor there.
func (a At) Of(tensor string) At {
	a.Tensor = tensor
	return a
}

// In is the place in a phase of the step, and where in it the computation has it: of
// two findings of a phase the one with the lower order is the earlier.
func (a At) In(p Phase, order int) At {
	a.phase, a.order = p, order
	return a
}

// Against says that what is wanted there is what the run of a role has: the two
// differ, and either may be wrong.
func (a At) Against(r Role) At {
	a.against = r
	return a
}

// By says that the run of a role, which is not the test run, is wrong there.
func (a At) By(r Role) At {
	a.of = r
	return a
}

// Finding is a violation there of no known element. got and want are written as
// fmt.Sprint does, nil as nothing.
func (a At) Finding(got, want any, format string, args ...any) Finding {
	return Finding{Rank: a.Rank, Step: a.Step, Phase: a.phase, Tensor: a.Tensor, Index: -1, Got: text(got), Want: text(want),
		Against: a.against, Of: a.of, Order: a.order, Message: fmt.Sprintf(format, args...)}
}

func text(x any) string {
	if x == nil {
		return ""
	}
	return fmt.Sprint(x)
}

// Report adds the violation that Finding describes.
func (a At) Report(got, want any, format string, args ...any) {
	a.Pass.Report(a.Finding(got, want, format, args...))
}

// Compare expects one piece of evidence, found if ok: got, which must be want.
// The message is of a finding. NaN is NaN.
func Compare[T comparable](a At, ok bool, got, want T, format string, args ...any) {
	if a.Pass.Found(ok) && got != want && (got == got || want == want) {
		a.Report(got, want, format, args...)
	}
}

// Found expects one piece of evidence, which was found if ok, and returns ok.
func (p *Pass) Found(ok bool) bool {
	p.Expect(1)
	if ok {
		p.Saw(1)
	}
	return ok
}

// Count expects n pieces of evidence, of which found were: of more, n count, so
// that a surplus of one thing does not hide the lack of another.
func (p *Pass) Count(n, found int) {
	p.Expect(n)
	p.Saw(min(n, found))
}
