package contracts

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/report"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/internal/guard"
)

// mutantDeadline bounds how long a rank of a broken run waits for a peer that
// does not come: some mutants end that way.
const mutantDeadline = 10 * time.Second

// mutantLevel is the highest level whose cases mutants break. A soak does the same for
// longer, hours with every mutant, and nothing more is proved by it.
const mutantLevel = 2

// goldenClause compares with the recorded fingerprints: it sees everything and
// names nothing, so it is never the only one to see a fault.
const goldenClause = "C-DET-001.3"

// SelfTest runs the mutants of the contracts and judges each by the clauses of all
// contracts. A clause holds if all its mutants are caught: it is violated, at
// the place where the fault is, and not by the golden hash alone. A mutant that
// survives, or whose run equals the unbroken one, violates it. Runs of mutants
// may end in errors: what they recorded until then is judged.
func SelfTest(ctx context.Context, cs []*suite.Suite, o Options) (*report.Report, error) {
	if err := Validate(cs); err != nil {
		return nil, err
	}
	soak := o.Level > mutantLevel
	if err := o.mutants(cs); err != nil {
		return nil, err
	}
	st := newSelfTest(cs, &o)
	groups, err := st.groups(ctx)
	if err != nil {
		return nil, err
	}
	err = st.run(ctx, groups)
	var out []report.Contract
	for _, g := range groups {
		out = append(out, st.summary(g))
	}
	r := report.New(o.environment(nil), out)
	r.SelfTest = true
	if soak {
		r.Notes = append(r.Notes, fmt.Sprintf("mutants break the cases of level %d: those beyond repeat them for longer", mutantLevel))
	}
	if left := st.leftOut(); o.namesFaults() {
		r.LeaveOut(left...)
	} else {
		r.Notes = append(r.Notes, left...)
	}
	if cause := context.Cause(ctx); cause != nil {
		r.Notes = append(r.Notes, fmt.Sprintf("%v: mutants that are named as not run were not judged", cause))
	}
	return r, err
}

// mutants makes these the options of a self-test, here and in every agent, and checks
// them: mutants belong to the contracts' own cases, and not to the longest of them.
func (o *Options) mutants(cs []*suite.Suite) error {
	o.Plans, o.Config, o.Steps, o.Case = nil, "", 0, ""
	err := o.Check(cs)
	o.Level = min(o.Level, mutantLevel)
	return err
}

// selfTest is the state of one SelfTest.
type selfTest struct {
	o      *Options
	cs     []*suite.Suite
	beside *beside
	engine *suite.Engine
	apart  []Fault // that need one process, where there are several
	every  bool    // all other mutants of every contract are run

	mu   sync.Mutex
	errs []error // why nothing can be said of some faults
}

func newSelfTest(cs []*suite.Suite, o *Options) *selfTest {
	e := o.engine()
	return &selfTest{o: o, cs: cs, engine: e, beside: &beside{o: o, engine: e, judges: judges(cs)}}
}

// judges are the contracts whose clauses look at every fault: all, unless there
// is one among cs that All does not have.
func judges(cs []*suite.Suite) []*suite.Suite {
	all := All()
	known := func(c *suite.Suite) bool {
		return slices.ContainsFunc(all, func(a *suite.Suite) bool { return a.ID == c.ID })
	}
	for _, c := range cs {
		if !known(c) {
			return cs
		}
	}
	return all
}

// group is a contract with those of its faults that are run.
type group struct {
	*contract.Contract
	attempts []*attempt
	// generated says that any clause may catch the faults.
	generated bool
}

// attempt is one fault with its runs: the case unbroken and broken, nil where the
// contract has no such case.
type attempt struct {
	mutant        suite.Mutant
	own           *suite.Suite // nil for a generated fault
	clean, broken *suite.Trial
	out           report.Mutant
	took          time.Duration
}

// groups plans the faults that the options ask for.
func (s *selfTest) groups(ctx context.Context) ([]*group, error) {
	asked, err := s.o.faults(s.cs)
	if err != nil {
		return nil, err
	}
	s.every = asked.all
	var out []*group
	for _, c := range s.cs {
		g := &group{Contract: c.Contract}
		clean := map[string]*suite.Trial{}
		for _, m := range c.Mutants {
			if !asked.has(c.ID, m.ID) {
				continue
			}
			if s.o.Agents > 0 && (c.OneProcess || m.OneProcess) {
				s.apart = append(s.apart, Fault{m, c.ID})
				continue
			}
			a := &attempt{mutant: m, own: c}
			g.attempts = append(g.attempts, a)
			if one, ok := c.Find(s.o.Options, m.On); !ok {
				continue
			} else if clean[m.On] == nil {
				clean[m.On] = s.engine.Plan(c.ID, one)
			}
			a.clean, a.broken = clean[m.On], clean[m.On].Break(m)
		}
		if len(g.attempts) > 0 {
			out = append(out, g)
		}
	}
	more, err := s.generate(ctx, asked)
	if err == nil && len(more.attempts) > 0 {
		out = append(out, more)
	}
	return out, err
}

// run makes the runs of all attempts and judges them, a few side by side. What a
// broken run recorded is forgotten when it is judged.
func (s *selfTest) run(ctx context.Context, groups []*group) error {
	var eg errgroup.Group
	eg.SetLimit(max(1, min(s.engine.Width, runtime.GOMAXPROCS(0))))
	for _, g := range groups {
		for _, a := range g.attempts {
			if ctx.Err() != nil {
				break
			}
			eg.Go(func() error {
				begun := time.Now()
				err := guard.Do(func() (err error) {
					a.out, err = s.try(ctx, g, a)
					return err
				})
				a.took = time.Since(begun)
				a.broken = nil
				if err != nil {
					s.failed(a, err)
				}
				return nil // the other faults are tried all the same
			})
		}
	}
	_ = eg.Wait()
	for _, g := range groups {
		for _, a := range g.attempts {
			if a.out.Outcome == "" {
				s.failed(a, context.Cause(ctx))
			}
		}
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return errors.Join(s.errs...)
}

// failed notes why nothing can be said of a fault.
func (s *selfTest) failed(a *attempt, err error) {
	a.out = report.Mutant{ID: a.mutant.ID, On: a.mutant.On, Says: a.mutant.Says, Rows: a.mutant.Rows, Outcome: report.NotRun, Detail: err.Error()}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.errs = append(s.errs, fmt.Errorf("mutant %s: %w", a.mutant.ID, err))
}

// try says what became of one fault.
func (s *selfTest) try(ctx context.Context, g *group, a *attempt) (report.Mutant, error) {
	m := report.Mutant{ID: a.mutant.ID, On: a.mutant.On, Says: a.mutant.Says, Rows: a.mutant.Rows}
	if a.broken == nil {
		m.Outcome, m.Detail = report.NotRun, "the contract has no such case at this level"
		return m, nil
	}
	sight, err := s.beside.look(ctx, a)
	if err != nil {
		return m, err
	}
	m.Seen = sight.seen()
	if m.Late, err = s.beside.late(ctx, a); err != nil {
		return m, err
	}
	m.Outcome, m.Detail = s.outcome(g, a, sight)
	return m, s.unable(a, m.Outcome)
}

// unable says why nothing follows from an outcome: the unbroken run did not come to
// its end, or the broken one came to that of a deadline so short that it proves
// nothing of the fault.
func (s *selfTest) unable(a *attempt, outcome report.Outcome) error {
	if err := suite.Errors(a.clean); err != nil {
		return err
	}
	err := a.broken.Err(contract.Test)
	if d := s.o.Parts.Deadline; outcome != report.Caught && d > 0 && d < mutantDeadline && err != nil && strings.Contains(err.Error(), names.Late) {
		return err
	}
	return nil
}
