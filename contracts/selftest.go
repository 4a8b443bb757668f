package contracts

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
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

// attempt is one mutant with its runs: the case unbroken and broken.
type attempt struct {
	mutant        suite.Mutant
	clean, broken *planned
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
	var q queue
	attempts := map[*suite.Suite][]attempt{}
	for _, c := range cs {
		attempts[c] = q.attempts(c, o.Options)
	}
	if err := o.execute(ctx, q.jobs); err != nil {
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
	env := o.Environment
	env.Text, env.TextHash = o.Text.Name, o.Text.Hash()
	r := report.New(env, out)
	r.SelfTest = true
	return r, nil
}

// attempts queues the unbroken and the broken runs of a contract's mutants.
func (q *queue) attempts(c *suite.Suite, o suite.Options) []attempt {
	clean := map[string]*planned{}
	var out []attempt
	for _, m := range c.Mutants {
		all := c.Cases(o)
		i := slices.IndexFunc(all, func(cs suite.Case) bool { return cs.Name == m.On })
		if i < 0 {
			out = append(out, attempt{mutant: m})
			continue
		}
		if clean[m.On] == nil {
			clean[m.On] = q.plan(c, all[i])
		}
		broken := clone(all[i])
		m.Break(&broken)
		out = append(out, attempt{m, clean[m.On], q.planBroken(c, m, clean[m.On], broken)})
	}
	return out
}

// planBroken queues the runs of a broken case. The test run is always its own;
// the others are the unbroken case's unless Break touched them.
func (q *queue) planBroken(c *suite.Suite, m suite.Mutant, clean *planned, cs suite.Case) *planned {
	p := &planned{contract: c, cs: cs, jobs: map[contract.Role]*job{}}
	for _, role := range roles(cs) {
		r := cs.Runs[role]
		if role != contract.Test && clean.jobs[role] != nil && untouched(clean.cs.Runs[role], r) {
			p.jobs[role] = clean.jobs[role]
			continue
		}
		r.Key = ""
		j := q.add(fmt.Sprintf("%s, mutant %s, %s run", c.ID, m.ID, role), r)
		j.deadline = mutantDeadline
		p.jobs[role] = j
	}
	return p
}

// untouched reports whether two runs are surely the same: functions cannot be
// compared, so a run that has one counts as touched.
func untouched(a, b suite.Run) bool {
	return a.Do == nil && b.Do == nil && a.Parts == nil && b.Parts == nil && reflect.DeepEqual(a.Config, b.Config)
}

// clone copies a case so deeply that breaking the copy leaves the original.
func clone(cs suite.Case) suite.Case {
	runs := map[contract.Role]suite.Run{}
	for role, r := range cs.Runs {
		if r.Config != nil {
			cfg := *r.Config
			cfg.Blank = slices.Clone(cfg.Blank)
			r.Config = &cfg
		}
		runs[role] = r
	}
	cs.Runs = runs
	cs.Clauses = slices.Clone(cs.Clauses)
	return cs
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
	clean, err := judge(alone, []contract.Evidence{a.clean.evidence(o.Oracle)})
	if err != nil {
		return m, err
	}
	broken, err := judge(alone, []contract.Evidence{a.broken.evidence(o.Oracle)})
	if err != nil {
		return m, err
	}
	switch {
	case clean[0].Verdict() == contract.Violated:
		m.Outcome, m.Detail = report.Unclear, "the unbroken run violates the clause: "+describe(clean[0])
	case broken[0].Verdict() == contract.Violated:
		m.Outcome, m.Detail = report.Caught, describe(broken[0])
	case a.broken.jobs[contract.Test].history == nil:
		m.Outcome, m.Detail = report.NotRun, fmt.Sprint(a.broken.jobs[contract.Test].err)
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
func sameRun(a, b *planned) bool {
	for _, role := range roles(b.cs) {
		ja, jb := a.jobs[role], b.jobs[role]
		if ja == nil || !sameHistory(ja.history, jb.history) {
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
