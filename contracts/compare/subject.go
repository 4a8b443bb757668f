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

// With is a check of the test run alone. Of a run that is not of the subject, the
// pass doubts.
func (s Subject) With(check func(*contract.Pass, *evidence.Run)) func(*contract.Pass) {
	return evidence.With(func(p *contract.Pass, r *evidence.Run) {
		if s.of(p, r) {
			check(p, r)
		}
	})
}

// WithPart is a check of the test run and its control, which has the whole model
// on every rank; something of the two must be equal.
func (s Subject) WithPart(check func(*contract.Pass, *Comparison)) func(*contract.Pass) {
	return s.with(unsplit, check)
}

// WithPair is a check of the test run and the single worker, whatever the plan
// promises.
func (s Subject) WithPair(check func(*contract.Pass, *Comparison)) func(*contract.Pass) {
	return s.with(single, check)
}

func (s Subject) with(fits func(*Comparison) error, check func(*contract.Pass, *Comparison)) func(*contract.Pass) {
	return evidence.With(func(p *contract.Pass, test *evidence.Run) {
		if c, ok := With(p, test, fits); ok && s.of(p, test) {
			check(p, c)
		}
	})
}

// of doubts a run that is not of the subject.
func (s Subject) of(p *contract.Pass, r *evidence.Run) bool {
	about := s.About(r.Config.Plan)
	if !about {
		p.Doubt("plan %s %s", r.Config.Plan, s.Lacks)
	}
	return about
}
