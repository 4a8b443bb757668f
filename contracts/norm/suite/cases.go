// Package suite runs contract C-NORM-001.
package suite

import (
	"math"

	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/contracts/norm"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// Suite is the contract with its cases and mutants.
func Suite() *suite.Suite {
	grid := suite.Grid{Fixtures: fixtures, Named: named, Prepare: prepare, Exact: true, Runs: runs}
	return &suite.Suite{Contract: norm.Contract(), Cases: grid.Cases, Mutants: mutants()}
}

// Steps of the data in which an infinity is planted: between others, so that
// there is a state to keep and a step that goes on. Long runs skip again.
const skipped, skippedAgain = 1, 4

// tokens is the sequence length: what a step computes is not in question here.
const tokens = 11

// skips says in the name of every case what happens in it.
const skips = " step 1 skipped"

// fixtures are the default cases of a level.
func fixtures(level int) []suite.Fixture {
	if level <= 1 {
		return []suite.Fixture{
			{Config: "nano", Steps: 3, Plans: []string{"dp=8,zero=1", "dp=2,pp=2"}, Suffix: skips},
			{Config: "odd", Steps: 3, Plans: []string{"dp=4", "dp=2,zero=3", "dp=2,tp=2,zero=2"}, Suffix: skips},
		}
	}
	return []suite.Fixture{
		{Config: "nano", Steps: 8, Plans: []string{"dp=8", "dp=8,zero=1", "dp=4,zero=2,microbatches=4", "dp=4,zero=3", "tp=4", "pp=4", "dp=2,tp=2,pp=2,zero=1", "dp=2,pp=2,zero=3,schedule=interleaved,virtual=2"}, Suffix: skips},
		{Config: "odd", Steps: 8, Plans: []string{"dp=4", "dp=4,zero=1,shard=balanced", "dp=2,zero=2,microbatches=4", "dp=4,zero=3,shard=tensors", "tp=4,vocab=parallel", "pp=3", "dp=2,tp=2,pp=2", "dp=2,tp=2,zero=3"}, Suffix: skips},
	}
}

func named(config string, _ int) suite.Fixture {
	return suite.Fixture{Config: config, Steps: 3, Plans: []string{"dp=2", "dp=2,zero=1"}, Suffix: skips}
}

// prepare makes room for the steps to be skipped.
func prepare(o suite.Options, c *spec.Config) {
	c.Steps = max(c.Steps, skipped+2)
	if o.Config == "" {
		c.Model.SeqLen = tokens
	}
}

// runs are a run and its control, which meet the same infinities.
func runs(o suite.Options, _ suite.Fixture, on ...spec.Config) map[contract.Role]suite.Run {
	control := compare.Single(on[0])
	control.Evidence.Capture = control.Model.Params() <= captured
	return map[contract.Role]suite.Run{contract.Test: planted(on[0], o), contract.Control: planted(control, o)}
}

// captured is the largest model, in parameters, of which the control records all
// elements: 4 times 32 MiB a step.
const captured = 1 << 23

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
