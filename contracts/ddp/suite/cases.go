package suite

import (
	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// fixture is a configuration and the plans it runs by default.
type fixture struct {
	config string
	steps  int
	plans  []string
	// sequences replaces the size of the global batch; 0 keeps the preset's.
	sequences int
	suffix    string // of the case names
}

// fixtures are the default cases of a level. dp=2 proves nothing about the
// shape of the tree, so there is always a larger one; nano with five sequences
// has logical workers, and one whole rank, without data; dp=3 divides nothing.
// In products each data-parallel group reduces another slice or stage; odd on two
// stages has its tied embedding on both.
func fixtures(level int) []fixture {
	few := []fixture{
		{config: "nano", steps: 2, plans: []string{"dp=2", "dp=4", "dp=8", "dp=3"}},
		{config: "odd", steps: 2, plans: []string{"dp=2", "dp=4"}},
		{config: "nano", steps: 2, plans: []string{"dp=4"}, sequences: 5, suffix: " of 5 sequences"},
		{config: "nano", steps: 2, plans: []string{"dp=2,tp=2,pp=2", "dp=2,tp=2,zero=1"}},
		{config: "odd", steps: 2, plans: []string{"dp=2,pp=2", "dp=2,tp=2,vocab=parallel"}},
	}
	if level <= 1 {
		return few
	}
	many := []fixture{
		{config: "nano", steps: 20, plans: []string{"dp=2", "dp=4", "dp=8", "dp=2,microbatches=8"}},
		{config: "nano", steps: 4, plans: []string{"dp=3", "dp=4,comm=ring", "dp=3,comm=star"}},
		{config: "odd", steps: 20, plans: []string{"dp=2", "dp=4", "dp=2,microbatches=6"}},
		{config: "odd", steps: 4, plans: []string{"dp=3", "dp=5"}},
		{config: "nano", steps: 8, plans: []string{"dp=4", "dp=2"}, sequences: 5, suffix: " of 5 sequences"},
		{config: "nano", steps: 8, plans: []string{
			"dp=2,tp=2,pp=2", "dp=2,tp=4,vocab=parallel", "dp=4,pp=4", "dp=2,pp=2,schedule=interleaved,virtual=2",
			"dp=4,zero=1,shard=balanced", "dp=2,tp=2,zero=1", "dp=4,tp=2,zero=2", "dp=2,tp=2,pp=2,zero=3", "dp=8,zero=3,microbatches=2",
		}},
		{config: "odd", steps: 8, plans: []string{
			"dp=2,tp=2,pp=2,vocab=parallel", "dp=4,pp=3", "dp=2,pp=2,schedule=interleaved,virtual=2,zero=1", "dp=4,tp=2,zero=2,vocab=parallel", "dp=2,pp=2,zero=3,shard=tensors",
		}},
		{config: "nano", steps: 2, plans: []string{"dp=3,tp=2,pp=2", "dp=3,tp=2,zero=2"}, suffix: " of two steps"},
		{config: "5M", steps: 2, plans: []string{"dp=2"}, sequences: 4, suffix: " of 4 sequences"},
	}
	if level == 2 {
		return many
	}
	return append(many,
		fixture{config: "nano", steps: 2000, plans: []string{"dp=8"}, suffix: " soak"},
		fixture{config: "350M", steps: 2, plans: []string{"dp=2"}, sequences: 4, suffix: " of 4 sequences"})
}

// list makes the cases of options.
func list(o suite.Options) []suite.Case {
	var out []suite.Case
	for _, f := range choose(o) {
		cfg, err := suite.Preset(f.config, o, f.steps)
		if err == nil && f.sequences > 0 {
			cfg.Sequences = f.sequences
		}
		plans, perr := suite.Plans(o, f.plans...)
		if err == nil {
			err = perr
		}
		if err != nil {
			return []suite.Case{suite.Broken("options", err)}
		}
		for _, p := range plans {
			out = append(out, one(compare.On(cfg, p), o, f.suffix))
		}
	}
	return out
}

// choose applies the options' configuration and plans: plans that were asked
// for run on one configuration each that they fit.
func choose(o suite.Options) []fixture {
	switch {
	case o.Config != "":
		steps := 2
		for _, f := range fixtures(o.Level) {
			if f.config == o.Config && f.sequences == 0 {
				steps = f.steps
				break
			}
		}
		return []fixture{{config: o.Config, steps: steps, plans: []string{"dp=2", "dp=4"}}}
	case len(o.Plans) > 0:
		var out []fixture
		for _, f := range fixtures(o.Level) {
			if fits(f, o) {
				out = append(out, f)
				break
			}
		}
		for _, f := range fixtures(o.Level) {
			if f.config == "odd" && fits(f, o) {
				return append(out, f)
			}
		}
		return out
	}
	return fixtures(o.Level)
}

// fits reports whether all plans that were asked for can run on the fixture.
func fits(f fixture, o suite.Options) bool {
	cfg, err := spec.Preset(f.config)
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
func one(cfg spec.Config, o suite.Options, suffix string) suite.Case {
	return suite.Case{Name: suite.Name(cfg) + suffix, Runs: map[contract.Role]suite.Run{
		contract.Test:    suite.Train(cfg, o),
		contract.Control: suite.Train(compare.Single(cfg), o),
	}}
}
