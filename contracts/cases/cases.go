// Package cases makes the runs of contracts' cases from options.
package cases

import (
	"context"
	"fmt"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// captured is the largest model, in parameters, whose elements are recorded
// whenever it helps: 1M elements are 4 MiB per digest of the whole.
const captured = 1 << 20

// Preset is the named configuration for verification, with the options' seed
// and text, and their steps or the given ones: everything is recorded, and a
// difference between replicas does not end the run.
func Preset(name string, o contract.Options, steps int) (spec.Config, error) {
	cfg, err := spec.Preset(name)
	if err != nil {
		return cfg, err
	}
	cfg.Steps = steps
	if o.Steps > 0 {
		cfg.Steps = o.Steps
	}
	if o.Seed != 0 {
		cfg.Seed = o.Seed
	}
	if o.Backend != "" {
		cfg.Backend = o.Backend
	}
	if o.Text.Name != "" {
		cfg.Text = o.Text.Name
	}
	cfg.Evidence = spec.Evidence{Digests: true, Workers: true, KeepGoing: true}
	return cfg, nil
}

// On is the configuration on a plan. A plan that does not promise the single
// worker's bits is recorded with its elements.
func On(cfg spec.Config, p plan.Plan) spec.Config {
	cfg.Plan = p
	cfg.Evidence.Capture = !p.Exact(cfg.Model)
	return cfg
}

// Single is the configuration on one rank, the control of every plan: with its
// elements recorded where the model is small. Activations are those of a
// micro-batch, so a control that records them keeps the cut.
func Single(cfg spec.Config) spec.Config {
	workers := cfg.Plan.Workers(cfg.Model)
	single := plan.Plan{DP: 1}
	if given := cfg.Plan.MicroBatches * max(1, cfg.Plan.DP); cfg.Evidence.Taps && given > workers {
		single.MicroBatches = given / workers * single.Workers(cfg.Model)
	}
	cfg.Plan = single
	cfg.Evidence.Capture = cfg.Model.Params() <= captured
	return cfg
}

// Unsplit is the configuration on the plan's control, which has the whole model
// on every rank.
func Unsplit(cfg spec.Config) spec.Config {
	whole := cfg.Plan.Unsplit(cfg.Model)
	if whole.World() == 1 {
		return Single(cfg)
	}
	if cfg.Evidence.Taps {
		whole.MicroBatches = cfg.Plan.MicroBatches
	}
	cfg.Plan = whole
	cfg.Evidence.Capture = cfg.Model.Params() <= captured
	return cfg
}

// Run trains cfg. Runs of one configuration on one text are done once.
func Run(cfg spec.Config, o contract.Options) contract.Run {
	return contract.Run{Key: string(cfg.Spec()) + " on text " + o.Text.Hash(), Config: &cfg}
}

// Broken is a case that reports an error of its options when it is run.
func Broken(name string, err error) contract.Case {
	fail := func(context.Context, contract.Env) (*trace.History, error) { return nil, err }
	return contract.Case{Name: name, Runs: map[contract.Role]contract.Run{contract.Test: {Do: fail}}}
}

// Plans parses the options' plans, or else the given ones.
func Plans(o contract.Options, otherwise ...string) ([]plan.Plan, error) {
	texts := otherwise
	if len(o.Plans) > 0 {
		texts = o.Plans
	}
	var out []plan.Plan
	for _, s := range texts {
		p, err := plan.Parse(s)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// Name is a case's name: the configuration's and the plan's.
func Name(cfg spec.Config) string { return fmt.Sprintf("%s %s", cfg.Model.Name, cfg.Plan) }

// Fit reports whether all plans of the options can run on a named configuration.
func Fit(config string, o contract.Options) bool {
	cfg, err := spec.Preset(config)
	if err != nil {
		return false
	}
	plans, err := Plans(o)
	for _, p := range plans {
		if err == nil {
			err = p.Validate(cfg.Model, cfg.Sequences)
		}
	}
	return err == nil
}
