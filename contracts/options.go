package contracts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/report"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
)

const maxLevel = 3

// Options say what to run and what with. Parts.Backend is required to run cases;
// judging histories without one makes no controls.
type Options struct {
	suite.Options
	// Case is the name of the only case to run; empty runs all.
	Case string
	// Parts makes the backends of all runs.
	Parts launch.Parts
	// Transport names what Parts.World carries operations by; empty is the memory of
	// this process.
	Transport string
	// Chosen is what chose the devices of Backend: lines that run something again have it.
	Chosen Chosen
	// Agents is the number of processes over which ranks are dealt, and Away makes
	// histories there; 0 is this process. Over says why that is not possible any more.
	Agents int
	Away   func(context.Context, suite.Away) (*trace.History, error)
	Over   func() error
	// Oracle judges plans on which exactness is not on offer; nil leaves those
	// clauses inconclusive.
	Oracle contract.Oracle
	// Texts opens a training text by the name that a configuration gives; nil
	// knows the built-in texts and files.
	Texts func(name string) (data.Text, error)
	// Histories is the directory that the runs' histories are saved below, as
	// <contract>_<case>/<role>/<rank>.ndjson; empty saves none.
	Histories string
	// ExpectRanks is the number of ranks that JudgeHistories must find; 0 is
	// what the histories themselves say.
	ExpectRanks int
	// Environment opens the report; the drivers fill in plans and text.
	Environment report.Environment
	// Faults says what a self-test runs: IDs of faults, FaultsAll for all, also the
	// generated ones; nothing or FaultsDefault is the contracts' own mutants.
	Faults []string
	// Progress is told how far the runs are, and which takes longest, when one begins
	// or ends; nil for none. Calls follow each other.
	Progress func(suite.Progress)
}

// Chosen is what chose the devices that compute: assignments of the environment, NAME=value,
// and flags with their values.
type Chosen struct{ Env, Flags []string }

// OptionError is a mistake in options, found before anything runs.
type OptionError struct{ Err error }

// Error names the value and the rule that it breaks.
func (e *OptionError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *OptionError) Unwrap() error { return e.Err }

// text opens the training text that a configuration names.
func (o *Options) text(name string) (data.Text, error) {
	builtin, ok := data.BuiltIn(name)
	switch {
	case name == o.Text.Name && o.Text.Bytes != nil:
		return o.Text, nil
	case ok:
		return builtin, nil
	case o.Text.Bytes != nil && beginning(name, o.Text.Name):
		return data.Part(name, o.text)
	case o.Texts != nil:
		return o.Texts(name)
	}
	if _, _, ok := data.Beginning(name); ok {
		return data.Part(name, o.text)
	}
	return data.Load(name)
}

// beginning reports whether name is that of the beginning of a text.
func beginning(name, whole string) bool {
	of, _, ok := data.Beginning(name)
	return ok && of == whole
}

// engine makes the histories. Ranks are goroutines already, so two runs fill the
// gaps of controls with one rank; from level 2 on, one at a time keeps memory to
// that of a single run.
func (o *Options) engine() *suite.Engine {
	width := min(runtime.GOMAXPROCS(0), max(2, runtime.GOMAXPROCS(0)/4))
	if o.Level > 1 {
		width = 1
	}
	return &suite.Engine{Parts: o.Parts, Text: o.text, Texts: o.again(), Width: width, Memory: o.Memory, Devices: o.Devices, Patience: mutantDeadline,
		Away: o.Away, Over: o.Over, Progress: o.Progress}
}

// Check fills defaults and refuses options that cannot be run on the contracts,
// as an *OptionError that names value and rule.
func (o *Options) Check(cs []*suite.Suite) error {
	o.Level = cmp.Or(o.Level, 1)
	if o.Text.Bytes == nil {
		o.Text = data.Default()
	}
	err := o.checkValues()
	if err == nil && len(cs) > 0 {
		err = o.checkRuns(cs)
	}
	if err != nil {
		return &OptionError{err}
	}
	return nil
}

func (o *Options) checkValues() error {
	switch {
	case len(o.Text.Bytes) == 0:
		return fmt.Errorf("text %s: is empty", o.Text.Name)
	case o.Level < 1 || o.Level > maxLevel:
		return fmt.Errorf("level=%d: must be from 1 to %d", o.Level, maxLevel)
	case o.Steps < 0 || o.Steps > spec.MaxSteps:
		return fmt.Errorf("steps=%d: must be from 1 to %d", o.Steps, spec.MaxSteps)
	case o.ExpectRanks < 0 || o.ExpectRanks > plan.MaxRanks:
		return fmt.Errorf("expect-ranks=%d: must be from 1 to %d", o.ExpectRanks, plan.MaxRanks)
	}
	name := cmp.Or(o.Config, widest)
	preset, err := o.Base(name)
	if err != nil {
		return err
	}
	for _, s := range o.Plans {
		p, err := plan.Parse(s)
		if err != nil {
			return err
		}
		if err := p.Validate(preset.Model, preset.Sequences); err != nil {
			return fmt.Errorf("config %s: %w", name, err)
		}
	}
	return nil
}

// widest is the fixture that every plan which fits a default case fits.
const widest = "nano"

// checkRuns checks what is needed to run the selected cases of contracts.
func (o *Options) checkRuns(cs []*suite.Suite) error {
	if o.Parts.Backend == nil {
		return errors.New("no backend is given to run on")
	}
	if err := o.checkName(cs); err != nil {
		return err
	}
	if err := o.checkSelection(cs); err != nil {
		return err
	}
	concerned, _, _ := o.concerned(cs)
	for _, c := range concerned {
		if err := o.checkCases(c); err != nil {
			return err
		}
	}
	return nil
}

// checkCases validates every training run of a contract's cases with its text.
func (o *Options) checkCases(c *suite.Suite) error {
	all := o.Cases(c)
	if len(all) == 0 && len(o.Plans) > 0 {
		return errors.New(o.untaken(c, o.Plans))
	}
	for _, cs := range all {
		for _, role := range cs.Roles() {
			if cfg := cs.Runs[role].Config; cfg != nil {
				if err := o.checkConfig(*cfg); err != nil {
					return fmt.Errorf("%s, case %s: %w", c.ID, cs.Name, err)
				}
			}
		}
	}
	return nil
}

func (o *Options) checkConfig(cfg spec.Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	text, err := o.text(cfg.Text)
	if err != nil {
		return err
	}
	_, err = cfg.Set(text)
	return err
}
