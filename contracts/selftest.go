package contracts

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/report"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// mutantDeadline bounds how long a rank of a broken run waits for a peer that
// does not come: some mutants end that way.
const mutantDeadline = 10 * time.Second

// attempt is one mutant with its runs: the case unbroken and broken, nil where the
// contract has no such case.
type attempt struct {
	mutant        suite.Mutant
	clean, broken *suite.Trial
}

// SelfTest runs every mutant of the contracts and judges it by the clause that
// must catch it. A clause holds if all its mutants are caught; a mutant that
// survives, or whose run equals the unbroken one, violates it. Runs of mutants
// may end in errors: what they recorded until then is judged.
func SelfTest(ctx context.Context, cs []*suite.Suite, o Options) (*report.Report, error) {
	if err := Validate(cs); err != nil {
		return nil, err
	}
	o.Plans, o.Config, o.Steps, o.Case = nil, "", 0, "" // mutants belong to the contract's own cases
	if err := o.Check(cs); err != nil {
		return nil, err
	}
	e := o.engine()
	attempts := map[*suite.Suite][]attempt{}
	var all []*suite.Trial
	for _, c := range cs {
		clean := map[string]*suite.Trial{}
		for _, m := range c.Mutants {
			if one, ok := c.Find(o.Options, m.On); !ok {
				attempts[c] = append(attempts[c], attempt{mutant: m})
				continue
			} else if clean[m.On] == nil {
				clean[m.On] = e.Plan(c.ID, one)
			}
			a := attempt{m, clean[m.On], clean[m.On].Break(m)}
			attempts[c] = append(attempts[c], a)
			all = append(all, a.clean, a.broken)
		}
	}
	if err := e.Run(ctx, all...); err != nil {
		return nil, err
	}
	var out []report.Contract
	for _, c := range cs {
		one, err := o.selfTest(c, attempts[c])
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	r := report.New(o.environment(nil), out)
	r.SelfTest = true
	return r, nil
}

// selfTest judges the mutants of one contract.
func (o *Options) selfTest(c *suite.Suite, attempts []attempt) (report.Contract, error) {
	out := report.Contract{ID: c.ID, Title: c.Title}
	for _, cl := range c.Clauses {
		sum := report.Clause{ID: cl.ID, Says: cl.Says, Class: cl.Class, Verdict: contract.Held}
		for _, a := range attempts {
			if a.mutant.Clause != cl.ID {
				continue
			}
			m, err := o.try(c, cl, a)
			if err != nil {
				return out, err
			}
			sum.Expected++
			sum.Mutants = append(sum.Mutants, m)
			if m.Outcome == report.Caught {
				sum.Saw++
				continue
			}
			sum.Verdict = contract.Violated
			sum.Found++
			sum.Findings = append(sum.Findings, contract.Finding{Case: m.On, Rank: -1, Step: -1, Index: -1,
				Message:   fmt.Sprintf("mutant %s: %s: %s", m.ID, m.Outcome, m.Detail),
				Reproduce: "verify --contract " + c.ID + " --self-test" + o.flags()})
		}
		if sum.Expected == 0 {
			sum.Verdict = contract.Inconclusive
		}
		out.Clauses = append(out.Clauses, sum)
	}
	return out, nil
}

// try says what became of one mutant.
func (o *Options) try(c *suite.Suite, cl *contract.Clause, a attempt) (report.Mutant, error) {
	m := report.Mutant{ID: a.mutant.ID, On: a.mutant.On, Says: a.mutant.Says}
	if a.broken == nil {
		m.Outcome, m.Detail = report.NotRun, "the contract has no such case at this level"
		return m, nil
	}
	alone := &contract.Contract{ID: c.ID, Clauses: []*contract.Clause{cl}}
	clean, err := judge(alone, []contract.Evidence{a.clean.Evidence(o.Oracle)})
	if err != nil {
		return m, err
	}
	broken, err := judge(alone, []contract.Evidence{a.broken.Evidence(o.Oracle)})
	if err != nil {
		return m, err
	}
	switch {
	case clean[0].Verdict() == contract.Violated:
		m.Outcome, m.Detail = report.Unclear, "the unbroken run violates the clause: "+describe(clean[0])
	case broken[0].Verdict() == contract.Violated:
		m.Outcome, m.Detail = report.Caught, describe(broken[0])
	case a.broken.History(contract.Test) == nil:
		m.Outcome, m.Detail = report.NotRun, fmt.Sprint(a.broken.Err(contract.Test))
	case sameRun(a.clean, a.broken):
		m.Outcome, m.Detail = report.Nothing, "the broken run recorded what the unbroken one did"
	default:
		m.Outcome, m.Detail = report.Survived, "the clause is "+broken[0].Verdict().String()
	}
	return m, nil
}

func describe(r contract.Result) string {
	if len(r.Findings) == 0 {
		return fmt.Sprintf("%d findings", r.Total)
	}
	f := &r.Findings[0]
	return report.Place(f) + ": " + f.Message
}

// sameRun reports whether breaking changed nothing in any role's history.
func sameRun(a, b *suite.Trial) bool {
	for _, role := range b.Roles() {
		if !sameHistory(a.History(role), b.History(role)) {
			return false
		}
	}
	return true
}

// sameHistory compares what two runs of one plan recorded, rank by rank. The
// events of each kind (and of each group's collectives) are in program order;
// kinds interleave freely, for reductions overlap the backward pass. Where
// buffers lie differs between any two runs and does not count.
func sameHistory(a, b *trace.History) bool {
	return a != nil && b != nil && reflect.DeepEqual(streams(a), streams(b))
}

type stream struct {
	rank  int
	kind  trace.Kind
	group names.Axis
}

func streams(h *trace.History) map[stream][]string {
	out := map[stream][]string{}
	for e := range h.All {
		if e.Kind == trace.KindSpan {
			continue
		}
		k := stream{e.Rank, e.Kind, e.Group}
		b, err := json.Marshal(e)
		if err != nil {
			b = fmt.Append(nil, err)
		}
		out[k] = append(out[k], string(b))
	}
	return out
}
