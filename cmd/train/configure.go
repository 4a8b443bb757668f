package main

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/lockstep-ml/lockstep/cmd/internal/cli"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/optim"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// configure is the preset with the given flags over it.
func (o *options) configure(ctx context.Context, flags *pflag.FlagSet) (spec.Config, data.Text, error) {
	fail := func(err error) (spec.Config, data.Text, error) {
		return spec.Config{}, data.Text{}, cli.AsUsage(err)
	}
	c, err := o.planned(flags)
	if err != nil {
		return fail(err)
	}
	text, err := cli.Given(ctx, o.data, o.stdin)
	if err != nil {
		return spec.Config{}, data.Text{}, err
	}
	c.Text, c.TextHash = text.Name, text.Hash()
	c.Recording.Digests = o.fingerprint
	if err := c.Validate(); err != nil {
		return fail(err)
	}
	if o.history != "" {
		c.Recording, o.left = evidence(c, o.resume != "")
	}
	_, err = c.Set(text)
	return c, text, cli.AsUsage(err)
}

// planned is the preset on the plan with the given flags over it, not validated.
func (o *options) planned(flags *pflag.FlagSet) (spec.Config, error) {
	c, err := cli.Preset(o.config)
	if err != nil {
		return c, err
	}
	if c.Plan, err = plan.Parse(o.plan); err != nil {
		return c, err
	}
	return c, o.override(flags, &c)
}

// override puts the flags that were given into c; the others keep the preset.
func (o *options) override(flags *pflag.FlagSet, c *spec.Config) error {
	if o.steps < 1 || o.steps > spec.MaxSteps {
		return fmt.Errorf("steps=%d: must be from 1 to %d", o.steps, spec.MaxSteps)
	}
	c.Steps, c.Seed, c.Backend = o.steps, o.seed, o.backend
	if flags.Changed("optimizer") && o.optimizer != c.Optimizer.Name {
		if o.optimizer == "" {
			return fmt.Errorf("optimizer \"\": known are adamw, sgd")
		}
		c.Optimizer.Name, c.Optimizer.Decay = o.optimizer, 0 // the decay's default depends on the optimizer
	}
	if flags.Changed("lr") {
		if !(o.lr > 0) {
			return fmt.Errorf("lr=%v: must be greater than 0", o.lr)
		}
		c.Optimizer.LR = o.lr
	}
	if flags.Changed("sequences") {
		if o.sequences < 1 {
			return fmt.Errorf("sequences=%d: must be at least 1", o.sequences)
		}
		c.Sequences = o.sequences
	}
	if flags.Changed("clip") {
		c.Optimizer.Clip = o.clip
	}
	o.schedule(flags, &c.Optimizer)
	if flags.Changed("tied") {
		c.Model.Tied = o.tied
	}
	return nil
}

// schedule puts the flags of the learning rate's schedule that were given into c.
func (o *options) schedule(flags *pflag.FlagSet, c *optim.Config) {
	if flags.Changed("warmup") {
		c.Warmup = o.warmup
	}
	if flags.Changed("horizon") {
		c.Horizon = o.horizon
	}
	if flags.Changed("min-lr") {
		c.MinLR = o.minLR
	}
}
