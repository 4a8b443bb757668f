package contracts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// A control is run here only for models that a single machine trains in
// passing; for others the directory must hold one.
const maxControlParams = 1 << 26

// complete gives a training case the runs that it can be compared with: the
// control, and, from the directory only, the same run again and with another
// seed.
func (j *judgement) complete(ctx context.Context, c *suite.Suite, rc *recordedCase) error {
	t := rc.runs[contract.Test]
	if t == nil || t.config == nil {
		return nil
	}
	if t.contract == "" {
		j.repeated(rc, t)
	} else if cs, ok := j.known(c, t); ok {
		if _, needed := cs.Runs[contract.Control]; !needed {
			return nil
		}
	}
	if rc.runs[contract.Control] != nil {
		return nil
	}
	want := controlOf(c, *t.config)
	found := j.recorded(t, want)
	if found == nil || !records(found.config.Evidence, want.Evidence) || c.Elements && !found.config.Evidence.Capture && want.Evidence.Capture {
		made, err := j.make(ctx, c, t)
		if err != nil {
			return err
		}
		found = cmp.Or(made, found)
	}
	if found != nil {
		rc.runs[contract.Control] = found
	}
	return nil
}

// make makes the control of a recorded run, of the steps that it recorded; nil, with
// a note, where it cannot. The error is only ctx's.
func (j *judgement) make(ctx context.Context, c *suite.Suite, t *recorded) (*recorded, error) {
	cfg, err := compare.Sized(t.history, *t.config)
	if err != nil {
		j.note("no control for %s: %v", t.config.Model.Name, err)
		return nil, nil
	}
	return j.control(ctx, controlOf(c, cfg))
}

// repeated finds the same run again, and with another seed.
func (j *judgement) repeated(rc *recordedCase, t *recorded) {
	unseeded := func(c spec.Config) string { c.Seed = 0; return runSpec(c) }
	for _, r := range j.all {
		if r == t || r.config == nil || unseeded(*r.config) != unseeded(*t.config) {
			continue
		}
		role := contract.Other
		if r.config.Seed == t.config.Seed {
			role = contract.Again
		}
		if rc.runs[role] == nil {
			rc.runs[role] = r
		}
	}
}

// runSpec is the specification without what it records.
func runSpec(c spec.Config) string {
	c.Evidence = spec.Evidence{}
	return string(c.Spec())
}

// problemSpec is the specification without how it is computed: equal for a run and
// its control.
func problemSpec(c spec.Config) string {
	c.Plan, c.Backend = plan.Plan{}, ""
	return runSpec(c)
}

// controlOf is what the contract judges a recorded run against. Elements are
// recorded only where they are few.
func controlOf(c *suite.Suite, cfg spec.Config) spec.Config {
	of := compare.Single
	if c.Control != nil {
		of = c.Control
	}
	want := of(cfg)
	e := &want.Evidence
	e.Digests, e.Workers, e.KeepGoing = true, true, true
	e.Capture = e.Capture && float64(want.Model.Params())*float64(want.Steps) <= maxControlElements
	return want
}

// maxControlElements bounds parameters times steps of controls that are made in
// passing with their elements: four of each parameter's are kept in memory.
const maxControlElements = 1 << 24

// records reports whether evidence holds what is needed: elements say more about
// a finding, and only the clauses of some contracts need those of a control.
func records(e, need spec.Evidence) bool {
	return e.Digests && e.Workers && (e.Taps || !need.Taps)
}

// recorded finds the control of a run in the directory, preferably one that
// records all that is needed.
func (j *judgement) recorded(t *recorded, want spec.Config) *recorded {
	var out *recorded
	for _, r := range j.all {
		if r == t || r.config == nil || problemSpec(*r.config) != problemSpec(want) || !samePlan(*r.config, want) {
			continue
		}
		if records(r.config.Evidence, want.Evidence) {
			return r
		}
		out = cmp.Or(out, r)
	}
	return out
}

// samePlan reports whether a run was computed as the control that is wanted. The
// cut into micro-batches decides activations only; on one rank nothing else
// about a plan decides anything.
func samePlan(c, want spec.Config) bool {
	if c.Validate() != nil || want.Validate() != nil {
		return false
	}
	a, b := c.Plan, want.Plan
	if !want.Evidence.Taps {
		a.MicroBatches, b.MicroBatches = 0, 0
	}
	if a.World() == 1 && b.World() == 1 {
		return a.MicroBatches == b.MicroBatches
	}
	return a == b
}

// control runs a control, once per specification. It notes why where it cannot;
// the error is only ctx's.
func (j *judgement) control(ctx context.Context, cfg spec.Config) (*recorded, error) {
	cfg.Backend = j.o.Backend
	key := string(cfg.Spec())
	if made, done := j.controls[key]; done {
		return made, nil
	}
	h, err := j.run(ctx, cfg)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	j.controls[key] = nil
	if err != nil {
		firstLine, _, _ := strings.Cut(err.Error(), "\n")
		j.note("no control %s for %s: %s", cfg.Plan, cfg.Model.Name, firstLine)
		return nil, nil
	}
	j.controls[key] = &recorded{history: h, config: &cfg}
	return j.controls[key], nil
}

func (j *judgement) run(ctx context.Context, cfg spec.Config) (*trace.History, error) {
	if cfg.Model.Params() > maxControlParams {
		return nil, errors.New("the model is too large to train here in passing; record a run of one rank into the directory")
	}
	text, err := j.o.text(cfg.Text)
	if err != nil {
		return nil, err
	}
	if text.Hash() != cfg.TextHash {
		return nil, fmt.Errorf("text %s has SHA-256 %.12s, the run was made with %.12s", cfg.Text, text.Hash(), cfg.TextHash)
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return j.engine.Make(ctx, suite.Run{Config: &cfg})
}
