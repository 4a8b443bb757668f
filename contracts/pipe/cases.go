package pipe

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

// oneWorker computes the whole batch as one logical worker, so that a step may
// have fewer micro-batches than stages.
func oneWorker(c *train.Config) { c.Model.Groups.Data = 1 }

// fixtures are the default cases of a level. odd has uneven micro-batches, some
// of which are shorter than the first, a tied head, and on three stages uneven
// ones.
func fixtures(level int) []fixture {
	few := []fixture{
		{config: "nano", steps: 2, plans: []string{"pp=2", "pp=4", "pp=4,schedule=gpipe", "pp=2,schedule=interleaved,virtual=2"}},
		{config: "odd", steps: 2, plans: []string{"pp=3", "pp=4,microbatches=8", "dp=2,pp=2", "pp=2,schedule=interleaved,virtual=2,microbatches=8"}},
		{config: "nano", steps: 1, plans: []string{"pp=4,microbatches=1", "pp=3,microbatches=2"}, change: oneWorker, suffix: " of one worker"},
	}
	if level <= 1 {
		return few
	}
	many := []fixture{
		{config: "nano", steps: 8, plans: []string{"pp=2", "pp=3", "pp=4", "pp=4,schedule=gpipe", "pp=2,schedule=interleaved,virtual=2",
			"dp=2,pp=2,zero=1", "dp=2,tp=2,pp=2,vocab=parallel"}},
		{config: "odd", steps: 8, plans: []string{"pp=2", "pp=3", "pp=4,microbatches=8", "pp=4,schedule=gpipe,microbatches=12", "dp=2,pp=2",
			"pp=2,schedule=interleaved,virtual=2,microbatches=8", "dp=2,pp=2,schedule=interleaved,virtual=2", "dp=2,tp=2,pp=2", "dp=2,pp=4,zero=3"}},
		{config: "nano", steps: 4, plans: []string{"pp=4,microbatches=1", "pp=3,microbatches=2", "pp=4,microbatches=16",
			"pp=2,schedule=interleaved,virtual=2,microbatches=3"}, change: oneWorker, suffix: " of one worker"},
	}
	if level == 2 {
		return many
	}
	return append(many, fixture{config: "5M", steps: 2, plans: []string{"pp=4,microbatches=8"},
		change: func(c *train.Config) { c.Sequences = 8 }, suffix: " of 8 sequences"})
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
// for run on the first fixture of each configuration that they fit.
func choose(o contract.Options) []fixture {
	if o.Config == "" && len(o.Plans) == 0 {
		return fixtures(o.Level)
	}
	if o.Config != "" {
		return []fixture{{config: o.Config, steps: 2, plans: stages(o.Config)}}
	}
	var out []fixture
	for _, f := range fixtures(o.Level) {
		if f.change == nil && cases.Fit(f.config, o) {
			out = append(out, f)
		}
	}
	return out
}

// stages are plans that a configuration allows.
func stages(config string) []string {
	c, err := model.Named(config)
	if err != nil || c.Layers < 4 {
		return []string{"pp=2"}
	}
	return []string{"pp=2", "pp=4", "pp=2,schedule=interleaved,virtual=2"}
}
