package compare

import (
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/plan"
)

// Subject is what a contract is about.
type Subject struct {
	About func(plan.Plan) bool
	Lacks string // what is said of other plans: "has one stage"
}

// Read reads the test run alone. Of a run that is not of the subject, the pass
// doubts.
func (s Subject) Read(p *contract.Pass) (*evidence.Run, bool) {
	r, ok := evidence.Read(p, contract.Test)
	return r, ok && s.of(p, r)
}

// Part is Part for runs of the subject.
func (s Subject) Part(p *contract.Pass) (*Comparison, bool) {
	c, ok := Part(p)
	return c, ok && s.of(p, c.Test)
}

// Pair is Pair for runs of the subject.
func (s Subject) Pair(p *contract.Pass) (*Comparison, bool) {
	c, ok := Pair(p)
	return c, ok && s.of(p, c.Test)
}

// With is a check of the test run alone.
func (s Subject) With(check func(*contract.Pass, *evidence.Run)) func(*contract.Pass) {
	return evidence.With(func(p *contract.Pass, r *evidence.Run) {
		if s.of(p, r) {
			check(p, r)
		}
	})
}

// WithPart is a check of the test run and its control, as Part reads them.
func (s Subject) WithPart(check func(*contract.Pass, *Comparison)) func(*contract.Pass) {
	return s.with(Part, check)
}

// WithPair is a check of the test run and the single worker, as Pair reads them.
func (s Subject) WithPair(check func(*contract.Pass, *Comparison)) func(*contract.Pass) {
	return s.with(Pair, check)
}

func (s Subject) with(read func(*contract.Pass) (*Comparison, bool), check func(*contract.Pass, *Comparison)) func(*contract.Pass) {
	return func(p *contract.Pass) {
		if c, ok := read(p); ok && s.of(p, c.Test) {
			check(p, c)
		}
	}
}

// of doubts a run that is not of the subject.
func (s Subject) of(p *contract.Pass, r *evidence.Run) bool {
	about := s.About(r.Config.Plan)
	if !about {
		p.Doubt("plan %s %s", r.Config.Plan, s.Lacks)
	}
	return about
}
