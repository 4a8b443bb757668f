// Package suite runs contracts: a Suite is a contract with the runs that are
// evidence for it and the broken runs that prove that each clause can fail, a
// Grid its cases as data, and an Engine makes their histories.
package suite

import (
	"context"
	"maps"
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// Suite is a contract, what to run for it, and what must violate it.
type Suite struct {
	*contract.Contract
	// Cases lists what to run at a level (1 seconds, 2 minutes, 3 soak).
	Cases func(Options) []Case
	// Mutants are broken runs; each names the clause that must catch it.
	Mutants []Mutant
	// Part says that clauses of the contract were left out, with what is about them
	// alone.
	Part bool
	// OneProcess says that the cases need all ranks in the memory of this process: a
	// schedule gives the turns.
	OneProcess bool
	// Ignores are the options on which no case depends. Who asks for them does not
	// ask for this contract.
	Ignores []Option
}

// Option is an option that narrows or changes cases, named as its flag is.
type Option string

// The options that a contract may ignore.
const (
	PlanOption   Option = "plan"
	ConfigOption Option = "config"
	StepsOption  Option = "steps"
	SeedOption   Option = "seed"
	DataOption   Option = "data"
)

// Drilled are the options that drills ignore: they train nothing.
func Drilled() []Option { return []Option{PlanOption, ConfigOption, StepsOption, DataOption} }

// Find is the case of a name.
func (s *Suite) Find(o Options, name string) (Case, bool) {
	all := s.Cases(o)
	i := slices.IndexFunc(all, func(c Case) bool { return c.Name == name })
	if i < 0 {
		return Case{}, false
	}
	return all[i], true
}

// Options narrow the cases of a contract; zero values mean the contract's own
// choice.
type Options struct {
	Level  int
	Plans  []string // plans to test, in plan.Parse's grammar
	Config string   // a named model configuration, or what Own is called
	// Own, where not nil, is the configuration that Config means.
	Own     *spec.Config
	Seed    uint64
	Steps   int
	Backend string
	Text    data.Text // the training text of cases that are not golden
	// Memory is how many bytes runs may use, all that go on at a time and all of their
	// ranks together; a run that alone needs more ends before it begins. 0 is any number.
	Memory int64
	// Processes is the number of those that ranks are dealt over, Devices that of the
	// devices that each of them has; 0 is one.
	Processes, Devices int
}

// Places is how many places there are that compute: devices of processes. A drill of each
// has a rank for each, of which rank r is in process r mod Processes.
func (o *Options) Places() int { return max(1, o.Processes) * max(1, o.Devices) }

// Base is the configuration of a name: Own, or a named one.
func (o *Options) Base(name string) (spec.Config, error) {
	if o.Own == nil || name != o.Config {
		return spec.Preset(name)
	}
	cfg := *o.Own
	cfg.Blank = slices.Clone(cfg.Blank)
	return cfg, cfg.Validate()
}

// Case is one thing to run and judge: named runs whose histories the clauses
// read together.
type Case struct {
	Name string // "nano dp=2", unique in its contract
	Runs map[contract.Role]Run
	// Clauses that this case is evidence for; nil is all of the contract's.
	Clauses []string
	// Lacks says what there is not enough of to run the case here, and Less what of it is
	// therefore not run; empty where nothing is amiss.
	Lacks, Less string
}

// Roles are the roles of the case's runs, sorted.
func (c *Case) Roles() []contract.Role { return slices.Sorted(maps.Keys(c.Runs)) }

// Shows reports whether the case is evidence for a clause.
func (c *Case) Shows(clause string) bool {
	return c.Clauses == nil || slices.Contains(c.Clauses, clause)
}

// Run makes one history. Key identifies its result: runs of equal keys are done
// once and shared; an empty key is never shared.
type Run struct {
	Key string
	// Alone asks that nothing else runs meanwhile: the run changes, or depends on,
	// what belongs to the whole process, such as the number of threads.
	Alone bool
	// Config is the training run; where Do makes the history, the configuration that
	// it trains, nil for a run that is not training.
	Config *spec.Config
	// First is the step that the run begins at; 0 but for one that goes on.
	First int
	// Parts decorates the run's parts (mutants); nil leaves them.
	Parts func(*launch.Parts)
	// Do makes the history of a run that is not training (a drill), or not training
	// alone (one that is resumed).
	Do func(ctx context.Context, env Env) (*trace.History, error)
}

// Env is what a run needs of its surroundings.
type Env struct {
	Parts launch.Parts // how backends and communicators are made
	Text  func(name string) (data.Text, error)
	// Company is the processes that make the run together; nil is this one alone.
	Company Company
}

// Train makes the history of a training run; after an error, up to it.
func (e Env) Train(ctx context.Context, cfg spec.Config) (*trace.History, error) {
	text, err := e.Text(cfg.Text)
	if err != nil {
		return nil, err
	}
	out, err := launch.Local(ctx, cfg, text, e.Parts)
	if e.Company != nil { // what comes next may depend on what any of the ranks did
		err = e.met(ctx, err)
	}
	if out == nil {
		return nil, err
	}
	return out.History, err
}

// Mutant is a broken run: Break changes a case's test run so that the clause it
// names must be violated.
type Mutant struct {
	ID     string // "skip-block-reduction", unique in its contract
	Clause string // the clause that must catch it
	Says   string // what is broken, and the public bug it resembles
	On     string // name of the case it is applied to
	Break  func(*Case)
	// Rows are the rows of the catalogue of public bugs that it stands for.
	Rows []string
	// At is where the first finding of Clause must be.
	At Place
	// OneProcess says that it needs all ranks in the memory of one process: the fault
	// is, or knows, what is in that of several.
	OneProcess bool
	// Everywhere says that no run escapes the fault: the controls that other
	// contracts compare the run with have it too.
	Everywhere bool
}
