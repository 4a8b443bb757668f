package suite

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// Preset is the configuration of a name for verification, with the options' seed
// and text, and their steps or the given ones: everything is recorded, and a
// difference between replicas does not end the run.
func Preset(name string, o Options, steps int) (spec.Config, error) {
	cfg, err := o.Base(name)
	if err != nil {
		return cfg, err
	}
	cfg.Steps, cfg.Seed = cmp.Or(o.Steps, steps), cmp.Or(o.Seed, cfg.Seed)
	cfg.Backend, cfg.Text = cmp.Or(o.Backend, cfg.Backend), cmp.Or(o.Text.Name, cfg.Text)
	cfg.Recording = spec.Recording{Digests: true, Workers: true, KeepGoing: true}
	return cfg, nil
}

// Train trains cfg. Runs of one configuration on one text are done once.
func Train(cfg spec.Config, o Options) Run {
	return Run{Key: string(cfg.Spec()) + " on text " + o.Text.Hash(), Config: &cfg}
}

// Broken is a case that reports an error of its options when it is run.
func Broken(name string, err error) Case {
	fail := func(context.Context, Env) (*trace.History, error) { return nil, err }
	return Case{Name: name, Runs: map[contract.Role]Run{contract.Test: {Do: fail}}}
}

// Plans parses plans.
func Plans(texts []string) ([]plan.Plan, error) {
	out := make([]plan.Plan, len(texts))
	for i, s := range texts {
		var err error
		if out[i], err = plan.Parse(s); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Name is a case's name: the configuration's and the plan's.
func Name(cfg spec.Config) string { return fmt.Sprintf("%s %s", cfg.Model.Name, cfg.Plan) }

// Foreign reports whether plans were asked for of which none is canonical: a
// contract that is about these alone has no case for them.
func Foreign(o Options) bool {
	plans, _ := Plans(o.Plans) // the options were checked
	return len(plans) > 0 && !slices.ContainsFunc(plans, compare.Canonical)
}

// Exact lists those of the plans that fit a configuration and promise it the
// single worker's bits.
func Exact(cfg spec.Config, plans []string) []plan.Plan {
	var out []plan.Plan
	for _, s := range plans {
		p, err := plan.Parse(s)
		given := p // Validate fills defaults
		if err == nil && p.Validate(cfg.Model, cfg.Sequences) == nil && p.Exact(cfg.Model) {
			out = append(out, given)
		}
	}
	return out
}
