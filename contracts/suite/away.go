package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// RunName says which run of a contract's one is: other processes with the same options
// find it by that.
type RunName struct {
	Contract string        `json:"contract"`
	Case     string        `json:"case"`
	Role     contract.Role `json:"role"`
	Mutant   string        `json:"mutant,omitempty"` // that breaks the case
}

// String is the name in words.
func (n RunName) String() string {
	if n.Mutant != "" {
		return fmt.Sprintf("%s, mutant %s, %s run", n.Contract, n.Mutant, n.Role)
	}
	return fmt.Sprintf("%s, %s, %s run", n.Contract, n.Case, n.Role)
}

// Away is a run that other processes make.
type Away struct {
	Name RunName `json:"name"`
	// Config is the run where it is training and no more; else the others find it by
	// its name.
	Config *spec.Config `json:"config,omitempty"`
	// Memory and Devices are those of the driver's Options: cases depend on them.
	Memory  int64 `json:"memory,omitempty"`
	Devices int   `json:"devices,omitempty"`
	// Patience, unless 0, bounds the deadline.
	Patience time.Duration `json:"patience,omitempty"`
	// World is the number of its ranks, 0 where it may have worlds of several sizes.
	World int `json:"-"`
}

// away makes the history of a job in other processes, where that is asked for and they
// can know what is meant; done is false where they cannot.
func (e *Engine) away(ctx context.Context, j *job) (h *trace.History, done bool, err error) {
	r := &j.run
	if e.Away == nil || j.name == (RunName{}) {
		return nil, false, nil
	}
	a := Away{Name: j.name, Memory: e.Memory, Devices: e.Devices, Patience: j.patience}
	switch {
	case r.Do == nil && r.Parts == nil:
		a.Config = r.Config
	case j.unlisted:
		return nil, false, nil
	}
	if r.Do == nil && r.Config != nil {
		cfg := *r.Config
		if err := cfg.Validate(); err != nil {
			return nil, true, err
		}
		a.World = cfg.Plan.World()
	}
	h, err = e.Away(ctx, a)
	return h, true, err
}

// Company is the processes that make a run together.
type Company interface {
	// First reports whether this is the one that has rank 0 of every world.
	First() bool
	// Dir is another directory at each call, which all have in common, until the run has
	// ended, as all call it in the same order.
	Dir() (string, error)
	// Meet returns when all have called it, each with what went wrong with it, and gives
	// what went wrong with any.
	Meet(ctx context.Context, wrong error) error
}

// Dir is another directory of the run's own at each call; release removes it.
func (e Env) Dir() (dir string, release func() error, err error) {
	if e.Company != nil {
		dir, err = e.Company.Dir()
		return dir, func() error { return nil }, err
	}
	dir, err = os.MkdirTemp("", "lockstep-run-")
	return dir, func() error { return os.RemoveAll(dir) }, err
}

// First reports whether this process has rank 0.
func (e Env) First() bool { return e.Company == nil || e.Company.First() }

// Once does what one process does for all of a run, when all have come to it; all go on
// when it is done. What it gives is what went wrong.
func (e Env) Once(ctx context.Context, do func() error) error {
	if e.Company == nil {
		return do()
	}
	err := e.Company.Meet(ctx, nil)
	if err == nil && e.First() {
		err = do()
	}
	return e.met(ctx, err)
}

// met is what went wrong in this process, or else in another one.
func (e Env) met(ctx context.Context, wrong error) error {
	if err := e.Company.Meet(ctx, wrong); wrong == nil && err != nil {
		return fmt.Errorf("in another process: %w", err)
	}
	return wrong
}

// Make makes, in an agent, the history of a run of the trial with the ranks that are in
// this process; seat says how its ranks reach the others.
func (t *Trial) Make(ctx context.Context, role contract.Role, seat func(*Env)) (*trace.History, error) {
	j := t.jobs[role]
	if j == nil {
		return nil, errors.New("the case has no such run")
	}
	return t.engine.here(ctx, j, seat)
}

// MakeTraining is Trial.Make of a run that is training and no more.
func (e *Engine) MakeTraining(ctx context.Context, a Away, seat func(*Env)) (*trace.History, error) {
	return e.here(ctx, &job{name: a.Name, run: Run{Config: a.Config}, patience: a.Patience}, seat)
}
