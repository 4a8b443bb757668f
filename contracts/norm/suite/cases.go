package suite

import (
	"fmt"
	"math"

	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// fixture is a configuration and the plans it runs by default.
type fixture struct {
	config string
	steps  int
	plans  []string
}

// Steps of the data in which an infinity is planted: between others, so that
// there is a state to keep and a step that goes on. Long runs skip again.
const skipped, skippedAgain = 1, 4

// tokens is the sequence length: what a step computes is not in question here.
const tokens = 11

func fixtures(level int) []fixture {
	if level <= 1 {
		return []fixture{
			{"nano", 3, []string{"dp=8,zero=1", "dp=2,pp=2"}},
			{"odd", 3, []string{"dp=4", "dp=2,zero=3", "dp=2,tp=2,zero=2"}},
		}
	}
	return []fixture{
		{"nano", 8, []string{"dp=8", "dp=8,zero=1", "dp=4,zero=2,microbatches=4", "dp=4,zero=3", "tp=4", "pp=4", "dp=2,tp=2,pp=2,zero=1", "dp=2,pp=2,zero=3,schedule=interleaved,virtual=2"}},
		{"odd", 8, []string{"dp=4", "dp=4,zero=1,shard=balanced", "dp=2,zero=2,microbatches=4", "dp=4,zero=3,shard=tensors", "tp=4,vocab=parallel", "pp=3", "dp=2,tp=2,pp=2", "dp=2,tp=2,zero=3"}},
	}
}

// list makes the cases of options.
func list(o suite.Options) []suite.Case {
	if suite.Foreign(o) {
		return nil
	}
	var out []suite.Case
	for _, f := range choose(o) {
		cfg, err := suite.Preset(f.config, o, f.steps)
		if err != nil {
			return []suite.Case{suite.Broken("options", err)}
		}
		cfg.Steps = max(cfg.Steps, skipped+2)
		if o.Config == "" {
			cfg.Model.SeqLen = tokens
		}
		for _, p := range suite.Exact(cfg, f.plans) {
			out = append(out, one(compare.On(cfg, p), o))
		}
	}
	return out
}

// choose applies the options' configuration and plans; where the configuration
// is promised the single worker's bits by none of them, the default ones remain.
func choose(o suite.Options) []fixture {
	all := fixtures(o.Level)
	if o.Config != "" {
		all = []fixture{{o.Config, 3, []string{"dp=2", "dp=2,zero=1"}}}
	}
	var asked []fixture
	for _, f := range all {
		cfg, err := spec.Preset(f.config)
		if err == nil && len(suite.Exact(cfg, o.Plans)) > 0 {
			asked = append(asked, fixture{f.config, f.steps, o.Plans})
		}
	}
	if len(asked) > 0 {
		return asked
	}
	return all
}

// one is the case of a configuration with its plan: the run and its control
// meet the same infinities.
func one(cfg spec.Config, o suite.Options) suite.Case {
	single := compare.Single(cfg)
	return suite.Case{
		Name: fmt.Sprintf("%s step %d skipped", suite.Name(cfg), skipped),
		Runs: map[contract.Role]suite.Run{
			contract.Test:    planted(cfg, o),
			contract.Control: planted(single, o),
		}}
}

// planted is a run with infinities planted.
func planted(cfg spec.Config, o suite.Options) suite.Run {
	r := suite.Train(cfg, o)
	r.Key += " with infinities"
	r.Parts = infinities(cfg, float32(math.Inf(1)))
	return r
}

// infinities plants a value in the first block's gradient, in the steps to be
// skipped.
func infinities(cfg spec.Config, value float32) fault.Fault {
	return fault.All(fault.Plant(cfg, skipped, 1, value), fault.Plant(cfg, skippedAgain, 2, value))
}
