// Package contracttest tests a contract on real runs: its cases hold, every
// mutant is caught by the clause it names, and evidence that is taken away makes
// clauses inconclusive, never held.
package contracttest

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/oracle"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/trace/tracetest"
	"github.com/lockstep-ml/lockstep/internal/race"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/cpu"
)

// Runner makes and keeps the histories of cases.
type Runner struct {
	once   sync.Once
	engine *suite.Engine
}

// text is the built-in text that a configuration names, or a beginning of it, else
// the default one.
func text(name string) (data.Text, error) {
	if _, _, ok := data.Beginning(name); ok {
		return data.Part(name, text)
	}
	if t, ok := data.BuiltIn(name); ok {
		return t, nil
	}
	return data.Default(), nil
}

// plan plans a case on one engine for all.
func (r *Runner) plan(contractID string, c suite.Case) *suite.Trial {
	r.once.Do(func() {
		r.engine = &suite.Engine{Text: text, Parts: launch.Parts{
			Backend:  func(int) (kernels.Backend, error) { return cpu.New(cpu.Options{Threads: 1}) }, // quicker than ref, same bits
			Deadline: 20 * time.Second,
		}}
	})
	return r.engine.Plan(contractID, c)
}

// Options are those of level 1 on the default text.
func Options() suite.Options {
	return suite.Options{Level: 1, Text: data.Default()}
}

// Oracle judges by the default text.
func Oracle() contract.Oracle { return oracle.NewOracle(text) }

// Evidence runs a case; runs of equal keys are made once. An error of a run is
// returned beside what it recorded.
func (r *Runner) Evidence(t testing.TB, c suite.Case) (contract.Evidence, error) {
	t.Helper()
	return r.run(t, r.plan("", c))
}

func (r *Runner) run(t testing.TB, trial *suite.Trial) (contract.Evidence, error) {
	t.Helper()
	if err := r.engine.Run(t.Context(), trial); err != nil {
		t.Fatal(err)
	}
	e := trial.Evidence(Oracle())
	for _, h := range e.Histories {
		tracetest.Admitted(t, h)
	}
	return e, suite.Errors(trial)
}

// Cases are a contract's at level 1; under the race detector every fourth of
// them.
func Cases(c *suite.Suite) []suite.Case { return race.Some(4, c.Cases(Options())) }

// Held runs all cases of a contract and fails unless every clause holds.
func (r *Runner) Held(t *testing.T, c *suite.Suite, cases []suite.Case) []contract.Result {
	t.Helper()
	var all []contract.Evidence
	for _, cs := range cases {
		e, err := r.Evidence(t, cs)
		if err != nil {
			t.Errorf("case %s: %v", cs.Name, err)
		}
		all = append(all, e)
	}
	results := Judge(c.Contract, all)
	for _, res := range results {
		if !slices.ContainsFunc(cases, func(cs suite.Case) bool { return cs.Shows(res.Clause.ID) }) {
			continue
		}
		if v := res.Verdict(); v != contract.Held {
			t.Errorf("%s is %s: saw %d of %d, doubts %q", res.Clause.ID, v, res.Saw, res.Expected, res.Doubts)
			Log(t, res)
		}
	}
	return results
}

// Mutants runs every mutant, under the race detector the first of each clause,
// and fails unless its clause is violated. It returns nothing: what else a mutant
// violates is its own affair.
func (r *Runner) Mutants(t *testing.T, c *suite.Suite) {
	seen := map[string]bool{} // clauses
	for _, m := range c.Mutants {
		if race.Enabled && seen[m.Clause] {
			continue
		}
		seen[m.Clause] = true
		t.Run(m.ID, func(t *testing.T) {
			t.Parallel()
			on, ok := c.Find(Options(), m.On)
			if !ok {
				t.Fatalf("no case %q", m.On)
			}
			r.mutant(t, c, on, m)
		})
	}
}

// OnPlan runs a contract on a plan that its cases do not have: every clause
// holds, and the named mutants are caught there too, on the configuration that
// they are made for.
func (r *Runner) OnPlan(t *testing.T, c *suite.Suite, plan string, mutants ...string) {
	o := Options()
	o.Plans = []string{plan}
	t.Run(plan, func(t *testing.T) {
		t.Parallel()
		cases := short(c.Cases(o), o)
		r.Held(t, c, cases)
		for _, id := range mutants {
			t.Run(id, func(t *testing.T) {
				i := slices.IndexFunc(c.Mutants, func(m suite.Mutant) bool { return m.ID == id })
				if i < 0 {
					t.Fatal("no such mutant")
				}
				m := c.Mutants[i]
				config, _, _ := strings.Cut(m.On, " ")
				at := slices.IndexFunc(cases, func(cs suite.Case) bool { return strings.HasPrefix(cs.Name, config+" ") })
				if at < 0 {
					t.Fatalf("no case of %s", config)
				}
				r.mutant(t, c, cases[at], m)
			})
		}
	})
}

// short cuts the sequences of cases, which decide how long the oracle takes.
func short(all []suite.Case, o suite.Options) []suite.Case {
	for _, cs := range all {
		for role, run := range cs.Runs {
			cfg := *run.Config
			cfg.Model.SeqLen = 11
			cs.Runs[role] = suite.Train(cfg, o)
		}
	}
	return all
}

// mutant breaks a case; the mutant's clause must be violated.
func (r *Runner) mutant(t *testing.T, c *suite.Suite, on suite.Case, m suite.Mutant) {
	t.Helper()
	e, err := r.run(t, r.plan(c.ID, on).Break(m))
	if err != nil {
		t.Logf("the run ended early: %v", err)
	}
	for _, res := range Judge(c.Contract, []contract.Evidence{e}) {
		if res.Clause.ID != m.Clause {
			continue
		}
		if res.Verdict() != contract.Violated {
			t.Errorf("%s is %s: saw %d of %d, doubts %q", m.Clause, res.Verdict(), res.Saw, res.Expected, res.Doubts)
		}
		Log(t, res)
		return
	}
	t.Fatalf("no clause %q", m.Clause)
}

// Log prints the findings of a result.
func Log(t testing.TB, res contract.Result) {
	t.Helper()
	for _, f := range res.Findings {
		t.Logf("%s: rank %d step %d %s[%d] got %s want %s %s: %s", f.Case, f.Rank, f.Step, f.Tensor, f.Index, f.Got, f.Want, f.Bound, f.Message)
	}
}
