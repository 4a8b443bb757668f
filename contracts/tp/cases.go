package tp

import (
	"github.com/lockstep-ml/lockstep/contracts/cases"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/train"
)

// fixture is a configuration and the plans it runs by default.
type fixture struct {
	config string
	steps  int
	plans  []string
	change func(*train.Config) // of the preset; nil for none
	suffix string              // of the case names, where the preset is changed
}

// biased unties the head and gives every linear layer a bias.
func biased(c *train.Config) { c.Model.Tied, c.Model.LinearBias = false, true }

// fixtures are the default cases of a level. tp=2 shows little of the shape of a
// tree; odd on tp=4 has fewer KV heads than ranks, and an uneven vocabulary.
func fixtures(level int) []fixture {
	few := []fixture{
		{config: "nano", steps: 2, plans: []string{"tp=2", "tp=4,vocab=parallel", "dp=2,tp=2"}},
		{config: "odd", steps: 2, plans: []string{"tp=2", "tp=4,vocab=parallel", "dp=2,tp=2,pp=2,zero=1,vocab=parallel"}},
		{config: "odd", steps: 2, plans: []string{"tp=2,vocab=parallel"}, change: biased, suffix: " untied with linear biases"},
	}
	if level <= 1 {
		return few
	}
	many := []fixture{
		{config: "nano", steps: 8, plans: []string{"tp=2", "tp=4", "tp=4,vocab=parallel", "dp=2,tp=2", "dp=4,tp=2,zero=2", "tp=2,pp=2,vocab=parallel"}},
		{config: "odd", steps: 8, plans: []string{"tp=2,vocab=parallel", "tp=4", "tp=4,vocab=parallel,microbatches=8", "dp=2,tp=4,zero=3",
			"dp=2,tp=2,pp=2,zero=1,vocab=parallel"}},
		{config: "odd", steps: 4, plans: []string{"tp=2", "tp=4,vocab=parallel"}, change: biased, suffix: " untied with linear biases"},
	}
	if level == 2 {
		return many
	}
	return append(many, fixture{config: "5M", steps: 2, plans: []string{"tp=4,vocab=parallel"},
		change: func(c *train.Config) { c.Sequences = 4 }, suffix: " of 4 sequences"})
}

// list makes the cases of options.
func list(o contract.Options) []contract.Case {
	var out []contract.Case
	for _, f := range choose(o) {
		cfg, err := cases.Preset(f.config, o, f.steps)
		plans, perr := cases.Plans(o, f.plans...)
		if err == nil {
			err = perr
		}
		if err != nil {
			return []contract.Case{cases.Broken("options", err)}
		}
		cfg.Evidence.Taps = true
		if f.change != nil {
			f.change(&cfg)
		}
		for _, p := range plans {
			one := cases.On(cfg, p)
			out = append(out, contract.Case{Name: cases.Name(one) + f.suffix, Runs: map[contract.Role]contract.Run{
				contract.Test:    cases.Run(one, o),
				contract.Control: cases.Run(cases.Single(one), o),
			}})
		}
	}
	return out
}

// choose applies the options' configuration and plans: plans that were asked
// for run on the first fixture of each configuration.
func choose(o contract.Options) []fixture {
	if o.Config == "" && len(o.Plans) == 0 {
		return fixtures(o.Level)
	}
	if o.Config != "" {
		return []fixture{{config: o.Config, steps: 2, plans: split(o.Config)}}
	}
	var out []fixture
	for _, f := range fixtures(o.Level) {
		if f.change == nil && cases.Fit(f.config, o) {
			out = append(out, f)
		}
	}
	return out
}

// split are plans that a configuration allows: over two ranks, and over all of
// its groups.
func split(config string) []string {
	c, err := model.Named(config)
	if err != nil || c.Groups.Tensor < 4 {
		return []string{"tp=2"}
	}
	return []string{"tp=2", "tp=4,vocab=parallel"}
}
