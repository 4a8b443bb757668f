package contracts

import (
	"fmt"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/report"
)

// outcome weighs what the clauses saw of a fault.
func (s *selfTest) outcome(g *group, a *attempt, sight *sight) (report.Outcome, string) {
	if len(sight.alarms) > 0 {
		return report.Unclear, "the unbroken run violates a clause: " + describe(sight.alarms[0])
	}
	named, caught := sight.named(a.mutant.Clause)
	if g.generated {
		named, caught = sight.exact()
	}
	switch {
	case a.broken.History(contract.Test) == nil:
		return report.NotRun, fmt.Sprint(a.broken.Err(contract.Test))
	case caught && sight.goldenOnly():
		return report.GoldenOnly, "only the golden hash shows it, which names nothing"
	case caught && !g.generated && !a.mutant.At.Fits(&named.Findings[0]):
		return report.Misplaced, fmt.Sprintf("it must be named at %s; the first finding is %s", a.mutant.At, describe(named))
	case caught:
		return report.Caught, describe(named)
	case sameRun(a.clean, a.broken):
		return report.Nothing, "the broken run recorded what the unbroken one did"
	case g.generated && a.broken.Err(contract.Test) != nil:
		return report.Refused, fmt.Sprint(a.broken.Err(contract.Test))
	case g.generated:
		return report.Survived, "no exact clause is violated, but for the golden hash: " + Difference(a.clean.History(contract.Test), a.broken.History(contract.Test))
	}
	return report.Survived, "the clause is " + sight.verdict(a.mutant.Clause).String()
}

func describe(r contract.Result) string {
	if len(r.Findings) == 0 {
		return fmt.Sprintf("%d findings", r.Total)
	}
	f := &r.Findings[0]
	return report.Place(f) + ": " + f.Message
}

// summary is the report of one contract's faults.
func (s *selfTest) summary(g *group) report.Contract {
	out := report.Contract{ID: g.ID, Title: g.Title}
	for _, a := range g.attempts {
		out.Seconds += a.took.Seconds()
	}
	for _, cl := range g.Clauses {
		sum := report.Clause{ID: cl.ID, Says: cl.Says, Class: cl.Class, Verdict: contract.Held}
		for _, a := range g.attempts {
			if a.mutant.Clause == cl.ID {
				s.count(&sum, g, a.out)
			}
		}
		if sum.Expected == 0 {
			if len(sum.Mutants) == 0 && (len(s.o.Faults) > 0 || s.leaves(cl.ID)) {
				continue // its faults were not asked for, or are named as left out
			}
			sum.Verdict = contract.Inconclusive
		}
		if s.every && !s.leaves(cl.ID) && stale(cl, sum.Mutants) {
			sum.Verdict = contract.Violated
			sum.Found++
			sum.Findings = append(sum.Findings, contract.Finding{Rank: -1, Step: -1, Index: -1,
				Message:   "none of its mutants is named where it begins after the first step: the clause does not look at later ones",
				Reproduce: s.o.line("--self-test", "--contract", g.ID) + s.o.flags()})
		}
		out.Clauses = append(out.Clauses, sum)
	}
	return out
}

// count adds the outcome of a fault to its clause.
func (s *selfTest) count(sum *report.Clause, g *group, m report.Mutant) {
	sum.Mutants = append(sum.Mutants, m)
	if g.generated && m.Outcome == report.Nothing {
		return // it shows nothing, neither good nor bad
	}
	sum.Expected++
	if m.Outcome == report.Caught || g.generated && m.Outcome == report.Refused {
		sum.Saw++
		return
	}
	if m.Outcome == report.NotRun {
		sum.Verdict = sum.Verdict.Worse(contract.Inconclusive)
		sum.Doubts = append(sum.Doubts, fmt.Sprintf("mutant %s: not run: %s", m.ID, m.Detail))
		return
	}
	sum.Verdict = contract.Violated
	sum.Found++
	sum.Findings = append(sum.Findings, contract.Finding{Case: m.On, Rank: -1, Step: -1, Index: -1,
		Message:   fmt.Sprintf("mutant %s: %s: %s", m.ID, m.Outcome, m.Detail),
		Reproduce: s.o.line("--self-test", "--faults", m.ID) + s.o.flags()})
}
