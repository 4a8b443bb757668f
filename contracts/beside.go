package contracts

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	formulas "github.com/lockstep-ml/lockstep/contracts/formulas/suite"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// beside judges broken runs by contracts whose cases they are not: as recorded
// runs, each beside the control that the contract wants.
type beside struct {
	o      *Options
	engine *suite.Engine
	judges []*suite.Suite

	mu    sync.Mutex
	clean map[string]func() ([]contract.Result, error) // of unbroken runs, by contract and case
}

// sight is what the clauses of all contracts saw of a fault.
type sight struct {
	results []contract.Result // of the broken run, in the order of contracts
	alarms  []contract.Result // clauses that the unbroken run violates
}

// look runs what it takes and judges a fault by all contracts.
func (b *beside) look(ctx context.Context, a *attempt) (*sight, error) {
	trials := []*suite.Trial{a.clean, a.broken}
	views, err := b.views(a)
	if err != nil {
		return nil, err
	}
	for _, v := range views {
		trials = append(trials, v.trials()...)
	}
	if err := b.engine.Run(ctx, trials...); err != nil {
		return nil, err
	}
	out := &sight{}
	for _, v := range views {
		if err := b.judge(ctx, out, v, a.clean.Contract+"/"+a.clean.Name); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// judge adds what one contract sees.
func (b *beside) judge(ctx context.Context, out *sight, v view, key string) error {
	clean, err := b.unbroken(ctx, v, key)
	if err != nil {
		return err
	}
	broken, err := judge(ctx, v.by.Contract, []contract.Evidence{v.broken.evidence(b.o.Oracle)})
	if err != nil {
		return err
	}
	for i, r := range clean {
		if r.Verdict() == contract.Violated {
			out.alarms = append(out.alarms, r)
		}
		out.results = append(out.results, broken[i])
	}
	return nil
}

// unbroken judges an unbroken run, once.
func (b *beside) unbroken(ctx context.Context, v view, key string) ([]contract.Result, error) {
	key += " by " + v.by.ID
	b.mu.Lock()
	if b.clean == nil {
		b.clean = map[string]func() ([]contract.Result, error){}
	}
	if b.clean[key] == nil {
		b.clean[key] = sync.OnceValues(func() ([]contract.Result, error) {
			return judge(ctx, v.by.Contract, []contract.Evidence{v.clean.evidence(b.o.Oracle)})
		})
	}
	once := b.clean[key]
	b.mu.Unlock()
	return once()
}

// view is an unbroken and a broken run as one contract sees them.
type view struct {
	by            *suite.Suite
	clean, broken pair
}

// pair is a trial and, unless the contract judges the trial as it is, another
// one's run as its control; control is nil where there is none.
type pair struct {
	test, control *suite.Trial
	whole         bool // the trial as it is
}

func (v view) trials() []*suite.Trial {
	var out []*suite.Trial
	for _, t := range []*suite.Trial{v.clean.test, v.clean.control, v.broken.test, v.broken.control} {
		if t != nil {
			out = append(out, t)
		}
	}
	return out
}

func (p pair) evidence(oracle contract.Oracle) contract.Evidence {
	e := p.test.Evidence(oracle)
	if p.whole {
		return e
	}
	e.Clauses = nil
	for role := range e.Histories {
		if role != contract.Test {
			delete(e.Histories, role)
		}
	}
	if p.control != nil {
		if h := p.control.History(contract.Control); h != nil {
			e.Histories[contract.Control] = h
		}
	}
	return e
}

// views lists how the contracts look at a fault: its own at the case as it is,
// others, where the case is a training run that they are about, at that run.
func (b *beside) views(a *attempt) ([]view, error) {
	clean, broken := a.clean, a.broken
	cfg := clean.Runs[contract.Test].Config
	// A case that does something to its runs is its own contract's affair.
	training := cfg != nil && clean.Runs[contract.Test].Do == nil && clean.Runs[contract.Test].Parts == nil
	if training && a.mutant.Everywhere {
		clean, broken = b.recorded(a)
	}
	var out []view
	for _, x := range b.judges {
		switch {
		case a.own != nil && x.ID == a.own.ID:
			out = append(out, view{x, pair{test: a.clean, whole: true}, pair{test: a.broken, whole: true}})
		case !training || !whole(x) || x.Judges != nil && !x.Judges(cfg.Plan):
		default:
			control, spoilt := b.control(x, a, *clean.Runs[contract.Test].Config)
			out = append(out, view{x, pair{test: clean, control: control}, pair{test: broken, control: spoilt}})
		}
	}
	return out, nil
}

// whole reports whether a contract can judge a training run that is no case of
// its own.
func whole(x *suite.Suite) bool {
	_, ok := kind(x)
	return ok
}

// recorded is the case of a fault that no run escapes with everything recorded, the
// activations of one rank too.
func (b *beside) recorded(a *attempt) (clean, broken *suite.Trial) {
	cfg := compare.On(*a.clean.Runs[contract.Test].Config, a.clean.Runs[contract.Test].Config.Plan)
	cfg.Recording = spec.Recording{Digests: true, Workers: true, Capture: compare.Single(cfg).Recording.Capture, KeepGoing: true}
	one := suite.Case{Name: a.clean.Name, Runs: map[contract.Role]suite.Run{contract.Test: suite.Train(cfg, b.text(cfg))}}
	if cfg.Recording.Capture && cfg.Plan.World() == 1 {
		// No control is right: the formulas alone are, and they ask for activations.
		one = formulas.Case(one.Name, cfg, b.text(cfg))
	}
	clean = b.engine.PlanOther(a.clean.Contract, one)
	return clean, clean.Break(a.mutant)
}

func (b *beside) text(cfg spec.Config) suite.Options {
	text, err := b.o.text(cfg.Text)
	if err != nil {
		return b.o.Options // the run reports it
	}
	return suite.Options{Text: text}
}

// control is what a contract compares the run of cfg with, for the unbroken and
// for the broken run: the case's own control where it is that, else one that is
// made for it.
func (b *beside) control(x *suite.Suite, a *attempt, cfg spec.Config) (clean, broken *suite.Trial) {
	want := controlOf(x, cfg)
	if own, ok := a.clean.Runs[contract.Control]; ok && own.Config != nil && own.Do == nil &&
		runSpec(*own.Config) == runSpec(want) && records(own.Config.Recording, want.Recording) {
		return a.clean, a.broken
	}
	c := suite.Case{Name: a.clean.Name, Runs: map[contract.Role]suite.Run{contract.Control: suite.Train(want, b.text(want))}}
	clean = b.engine.PlanOther(x.ID, c)
	if !a.mutant.Everywhere {
		return clean, clean
	}
	one := suite.Case{Name: a.clean.Name, Runs: map[contract.Role]suite.Run{contract.Test: c.Runs[contract.Control]}}
	a.mutant.Break(&one)
	spoilt := one.Runs[contract.Test]
	spoilt.Key = ""
	return clean, b.engine.PlanOther(x.ID, suite.Case{Name: fmt.Sprintf("%s, mutant %s", a.clean.Name, a.mutant.ID),
		Runs: map[contract.Role]suite.Run{contract.Control: spoilt}})
}

// seen lists the clauses that a fault violates.
func (s *sight) seen() []string {
	var out []string
	for _, r := range s.results {
		if r.Verdict() == contract.Violated {
			out = append(out, r.Clause.ID)
		}
	}
	return out
}

// named is the result of a clause and whether it is violated.
func (s *sight) named(clause string) (contract.Result, bool) {
	for _, r := range s.results {
		if r.Clause.ID == clause {
			return r, r.Verdict() == contract.Violated
		}
	}
	return contract.Result{}, false
}

// exact is the first violated clause that compares exactly, but for the golden
// hash.
func (s *sight) exact() (contract.Result, bool) {
	i := slices.IndexFunc(s.results, func(r contract.Result) bool {
		return r.Verdict() == contract.Violated && r.Clause.Class != contract.Bound && r.Clause.ID != goldenClause
	})
	if i < 0 {
		return contract.Result{}, false
	}
	return s.results[i], true
}

// goldenOnly reports whether nothing but the golden hash shows the fault.
func (s *sight) goldenOnly() bool { return slices.Equal(s.seen(), []string{goldenClause}) }

func (s *sight) verdict(clause string) contract.Verdict {
	r, _ := s.named(clause)
	return r.Verdict()
}
