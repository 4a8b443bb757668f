package contracts

import (
	"context"
	"fmt"
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// Agent makes the runs that a driver asks for which has the same options.
type Agent struct {
	o      *Options
	engine *suite.Engine
}

// NewAgent is an agent of a verification, or of a self-test, whose driver has checked
// what is to be run.
func NewAgent(o Options, selfTest bool) (*Agent, error) {
	check := o.Check
	if selfTest {
		check = o.mutants
	}
	if err := check(nil); err != nil {
		return nil, err
	}
	a := &Agent{o: &o, engine: o.engine()}
	a.engine.Memory = 0 // the driver counts what all agents need
	return a, nil
}

// Make makes the history of a run with the ranks of this process, which seat places
// among others.
func (a *Agent) Make(ctx context.Context, run suite.Away, seat func(*suite.Env)) (*trace.History, error) {
	if run.Config != nil {
		return a.engine.MakeTraining(ctx, run, seat)
	}
	t, err := a.trial(run)
	if err != nil {
		return nil, fmt.Errorf("%s: no such run here: %w", run.Name, err)
	}
	return t.Make(ctx, run.Name.Role, seat)
}

// trial is that of a run's name, at a driver that has what the run says.
func (a *Agent) trial(run suite.Away) (*suite.Trial, error) {
	n := run.Name
	c, err := Find(n.Contract)
	if err != nil {
		return nil, err
	}
	o := *a.o
	o.Memory, o.Devices = run.Memory, run.Devices
	all := c.Cases(o.about(c))
	i := slices.IndexFunc(all, func(one suite.Case) bool { return one.Name == n.Case })
	if i < 0 {
		return nil, fmt.Errorf("%s has no case %q", n.Contract, n.Case)
	}
	t := a.engine.Plan(c.ID, all[i])
	if n.Mutant == "" {
		return t, nil
	}
	i = slices.IndexFunc(c.Mutants, func(m suite.Mutant) bool { return m.ID == n.Mutant })
	if i < 0 {
		return nil, fmt.Errorf("%s has no mutant %q", n.Contract, n.Mutant)
	}
	return t.Break(c.Mutants[i]), nil
}
