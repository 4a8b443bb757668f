package suite

import (
	"fmt"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/contracts/zero"
	"github.com/lockstep-ml/lockstep/core/optim"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// fixture is a configuration and the plans it runs by default.
type fixture struct {
	config string
	steps  int
	sgd    bool
	plans  []string
}

// fixtures are the default cases of a level. nano has 8 logical workers and an
// untied head; odd has 4, a tied head, and sizes that nothing divides.
func fixtures(level int) []fixture {
	few := []fixture{
		{config: "nano", steps: 2, plans: []string{
			"dp=4,zero=1", "dp=4,zero=2", "dp=4,zero=3", "dp=2,zero=3", "dp=4,zero=2,microbatches=4", "dp=4,zero=3,microbatches=4",
			"dp=3,zero=1", "dp=3,zero=2", "dp=3,zero=3",
			"dp=8,zero=1,shard=round-robin", "dp=4,zero=1,shard=contiguous", "dp=2,zero=1,shard=balanced",
		}},
		{config: "odd", steps: 2, plans: []string{
			"dp=4,zero=1", "dp=4,zero=2", "dp=4,zero=3", "dp=2,zero=1,microbatches=4", "dp=2,zero=2,microbatches=4", "dp=3,zero=3",
			"dp=4,zero=1,shard=balanced", "dp=4,zero=3,shard=tensors", "dp=2,pp=2,zero=1", "dp=2,tp=2,zero=3", "dp=2,pp=2,zero=3",
		}},
		{config: "odd", steps: 2, sgd: true, plans: []string{"dp=2,zero=1", "dp=2,zero=2", "dp=2,zero=3"}},
	}
	if level <= 1 {
		return few
	}
	many := []fixture{
		{config: "nano", steps: 8, plans: []string{
			"dp=2,zero=1", "dp=4,zero=1", "dp=8,zero=1", "dp=2,zero=2", "dp=4,zero=2", "dp=8,zero=2", "dp=2,zero=3", "dp=4,zero=3", "dp=8,zero=3",
			"dp=8,zero=2,microbatches=2", "dp=8,zero=3,microbatches=2", "dp=4,zero=3,microbatches=4",
			"dp=3,zero=1", "dp=3,zero=2", "dp=3,zero=3", "dp=5,zero=2,microbatches=3", "dp=4,zero=1,comm=ring", "dp=4,zero=3,comm=star",
			"dp=8,zero=1,shard=round-robin", "dp=4,zero=1,shard=contiguous", "dp=4,zero=1,shard=balanced", "dp=8,zero=3,shard=tensors",
			"dp=2,tp=2,pp=2,zero=1", "dp=2,tp=2,pp=2,zero=2", "dp=2,tp=2,pp=2,zero=3", "dp=2,pp=2,zero=3,schedule=interleaved,virtual=2",
		}},
		{config: "odd", steps: 8, plans: []string{
			"dp=2,zero=1", "dp=4,zero=1", "dp=2,zero=2", "dp=4,zero=2", "dp=2,zero=3", "dp=4,zero=3", "dp=4,zero=3,microbatches=2",
			"dp=3,zero=1", "dp=3,zero=2", "dp=3,zero=3", "dp=5,zero=3", "dp=13,zero=3",
			"dp=4,zero=1,shard=round-robin", "dp=4,zero=1,shard=contiguous", "dp=4,zero=1,shard=balanced", "dp=4,zero=3,shard=tensors",
			"dp=2,tp=2,pp=2,zero=1,shard=balanced", "dp=2,tp=2,pp=2,zero=3,shard=tensors", "dp=2,tp=4,zero=2,vocab=parallel", "dp=2,pp=4,zero=3", "dp=2,pp=2,zero=2,microbatches=4",
		}},
		{config: "odd", steps: 8, sgd: true, plans: []string{"dp=4,zero=1", "dp=4,zero=2", "dp=4,zero=3"}},
	}
	if level == 2 {
		return many
	}
	return append(many, fixture{config: "5M", steps: 4, plans: []string{"dp=4,zero=1", "dp=4,zero=2", "dp=4,zero=3", "dp=2,zero=1,shard=balanced"}})
}

// list makes the cases of options.
func list(o suite.Options) []suite.Case {
	var out []suite.Case
	for _, f := range choose(o) {
		cfg, err := suite.Preset(f.config, o, f.steps)
		plans, perr := suite.Plans(o, f.plans...)
		if err == nil {
			err = perr
		}
		if err != nil {
			return []suite.Case{suite.Broken("options", err)}
		}
		suffix := ""
		if f.sgd {
			cfg.Optimizer = optim.Config{Name: "sgd", LR: 0.1, Decay: 0.1, Clip: 1}
			suffix = " sgd"
		}
		for _, p := range plans {
			out = append(out, one(cfg, p, o, suffix))
		}
	}
	return out
}

// choose applies the options' configuration and plans.
func choose(o suite.Options) []fixture {
	if o.Config != "" {
		return []fixture{{config: o.Config, steps: 2, plans: []string{"dp=2,zero=1", "dp=2,zero=2", "dp=2,zero=3"}}}
	}
	if len(o.Plans) == 0 {
		return fixtures(o.Level)
	}
	var out []fixture
	for _, name := range []string{"nano", "odd"} {
		if fits(name, o) {
			out = append(out, fixture{config: name, steps: fixtures(o.Level)[0].steps})
		}
	}
	if len(out) == 0 { // let the run say what does not fit
		out = append(out, fixture{config: "nano", steps: 2})
	}
	return out
}

// fits reports whether all plans that were asked for can run on a configuration.
func fits(name string, o suite.Options) bool {
	cfg, err := spec.Preset(name)
	if err != nil {
		return false
	}
	plans, err := suite.Plans(o)
	for _, p := range plans {
		if err == nil {
			err = p.Validate(cfg.Model, cfg.Sequences)
		}
	}
	return err == nil
}

// one is the case of a configuration with its plan.
func one(cfg spec.Config, p plan.Plan, o suite.Options, suffix string) suite.Case {
	test := cfg
	test.Plan = p
	test.Evidence.Capture = !p.SameBits(zero.Unsharded(test).Plan, cfg.Model)
	return suite.Case{Name: fmt.Sprintf("%s%s", suite.Name(test), suffix), Runs: map[contract.Role]suite.Run{
		contract.Test:    suite.Train(test, o),
		contract.Control: suite.Train(zero.Unsharded(test), o),
	}}
}
