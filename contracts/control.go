package contracts

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockstep-ml/lockstep/contracts/cases"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/core/train"
)

// A control is run here only for models that a single machine trains in
// passing; for others the directory must hold one.
const maxControlParams = 1 << 26

// complete gives a training case the runs that it can be compared with: the
// control, and, from the directory only, the same run again and with another
// seed.
func (j *judgement) complete(ctx context.Context, c *contract.Contract, rc *recordedCase) error {
	t := rc.runs[contract.Test]
	if t == nil || t.config == nil {
		return nil
	}
	find := func(role contract.Role, want string, of func(train.Config) string) {
		for _, r := range j.all {
			if rc.runs[role] == nil && r != t && r.config != nil && of(*r.config) == want {
				rc.runs[role] = r
			}
		}
	}
	if t.contract == "" {
		find(contract.Again, runSpec(*t.config), runSpec)
		other := func(c train.Config) string { c.Seed = 0; return runSpec(c) }
		find(contract.Other, other(*t.config), func(c train.Config) string {
			if c.Seed == t.config.Seed {
				return ""
			}
			return other(c)
		})
	} else if cs, ok := j.known(c, rc.name); ok {
		if _, needed := cs.Runs[contract.Control]; !needed {
			return nil
		}
	}
	find(contract.Control, problemSpec(*t.config), func(c train.Config) string {
		if c.Plan.World() != 1 {
			return ""
		}
		return problemSpec(c)
	})
	if rc.runs[contract.Control] != nil {
		return nil
	}
	made, err := j.control(ctx, t)
	if made != nil {
		rc.runs[contract.Control] = made
	}
	return err
}

// runSpec is the specification without what it records.
func runSpec(c train.Config) string {
	c.Evidence = train.Evidence{}
	return string(c.Spec())
}

// problemSpec is the specification without how it is computed: equal for a run and
// its control.
func problemSpec(c train.Config) string {
	c.Plan, c.Backend = plan.Plan{}, ""
	return runSpec(c)
}

// control runs the single worker of a recorded run, once per specification. It
// notes why where it cannot; the error is only ctx's.
func (j *judgement) control(ctx context.Context, t *recorded) (*recorded, error) {
	key := problemSpec(*t.config)
	if made, done := j.controls[key]; done {
		return made, nil
	}
	cfg := cases.Single(*t.config)
	cfg.Backend = j.o.Backend
	cfg.Evidence.Digests, cfg.Evidence.Workers = true, true
	h, err := j.run(ctx, cfg)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	j.controls[key] = nil
	if err != nil {
		j.note("no control for %s %s: %s", cfg.Model.Name, t.config.Plan, firstLine(err))
		return nil, nil
	}
	j.controls[key] = &recorded{history: h, config: &cfg}
	return j.controls[key], nil
}

func (j *judgement) run(ctx context.Context, cfg train.Config) (*trace.History, error) {
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
	return j.o.one(ctx, &job{run: contract.Run{Config: &cfg}})
}
