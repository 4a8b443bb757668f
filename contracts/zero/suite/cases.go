// Package suite runs contract C-ZERO-001.
package suite

import (
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/contracts/zero"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/optim"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// Suite is the contract with its cases and mutants.
func Suite() *suite.Suite {
	grid := suite.Grid{Fixtures: fixtures, Named: named, Runs: runs}
	return &suite.Suite{Contract: zero.Contract(), Cases: grid.Cases, Mutants: mutants()}
}

// sgd trains with SGD.
func sgd(c *spec.Config) { c.Optimizer = optim.Config{Name: "sgd", LR: 0.1, Decay: 0.1, Clip: 1} }

// long has steps past the warm-up and over the end of the text, whose last step is
// half full.
func long(plans ...string) suite.Fixture {
	return suite.Fixture{Config: "odd", Steps: 10, Epoch: 7, Plans: plans, Suffix: suite.Epochs, Change: func(c *spec.Config) {
		c.Model.SeqLen, c.LastStep = 11, data.Pad
	}}
}

// wide has so many owners that their number has no hexadecimal digit.
func wide(plans ...string) suite.Fixture {
	return suite.Fixture{Config: "nano", Steps: 2, Plans: plans, Suffix: " of 17 sequences", Change: func(c *spec.Config) {
		c.Model.Groups.Data, c.Model.SeqLen, c.Sequences = 16, 5, 17
	}}
}

// shortened has no more blocks and tokens than stages and slices need.
func shortened(c *spec.Config) { c.Model.Layers, c.Model.SeqLen = 2, 5 }

// fixtures are the default cases of a level. nano has 8 logical workers and an
// untied head; odd has 4, a tied head, and sizes that nothing divides.
func fixtures(level int) []suite.Fixture {
	few := []suite.Fixture{
		{Config: "nano", Steps: 2, Plans: []string{
			"dp=4,zero=1", "dp=4,zero=2", "dp=4,zero=3", "dp=2,zero=3", "dp=4,zero=2,microbatches=4", "dp=4,zero=3,microbatches=4",
			"dp=3,zero=1", "dp=3,zero=2", "dp=3,zero=3",
			"dp=8,zero=1,shard=round-robin", "dp=4,zero=1,shard=contiguous", "dp=2,zero=1,shard=balanced",
		}},
		{Config: "odd", Steps: 2, Plans: []string{
			"dp=4,zero=1", "dp=4,zero=2", "dp=4,zero=3", "dp=2,zero=1,microbatches=4", "dp=2,zero=2,microbatches=4", "dp=3,zero=3",
			"dp=4,zero=1,shard=balanced", "dp=4,zero=3,shard=tensors", "dp=2,pp=2,zero=1", "dp=2,tp=2,zero=3", "dp=2,pp=2,zero=3",
		}},
		{Config: "odd", Steps: 2, Plans: []string{"dp=2,zero=1", "dp=2,zero=2", "dp=2,zero=3"}, Change: sgd, Suffix: " sgd"},
		{Config: "odd", Steps: 2, Plans: []string{"dp=2,tp=2,pp=2,zero=2,vocab=parallel"}, Change: shortened, Suffix: " of two blocks"},
		long("dp=4,zero=3"),
		wide("dp=16,zero=3"),
	}
	many := []suite.Fixture{
		{Config: "nano", Steps: 8, Plans: []string{
			"dp=2,zero=1", "dp=4,zero=1", "dp=8,zero=1", "dp=2,zero=2", "dp=4,zero=2", "dp=8,zero=2", "dp=2,zero=3", "dp=4,zero=3", "dp=8,zero=3",
			"dp=8,zero=2,microbatches=2", "dp=8,zero=3,microbatches=2", "dp=4,zero=3,microbatches=4",
			"dp=3,zero=1", "dp=3,zero=2", "dp=3,zero=3", "dp=5,zero=2,microbatches=3", "dp=4,zero=1,comm=ring", "dp=4,zero=3,comm=star",
			"dp=8,zero=1,shard=round-robin", "dp=4,zero=1,shard=contiguous", "dp=4,zero=1,shard=balanced", "dp=8,zero=3,shard=tensors",
			"dp=2,tp=2,pp=2,zero=1", "dp=2,tp=2,pp=2,zero=2", "dp=2,tp=2,pp=2,zero=3", "dp=2,pp=2,zero=3,schedule=interleaved,virtual=2",
		}},
		{Config: "odd", Steps: 8, Plans: []string{
			"dp=2,zero=1", "dp=4,zero=1", "dp=2,zero=2", "dp=4,zero=2", "dp=2,zero=3", "dp=4,zero=3", "dp=4,zero=3,microbatches=2",
			"dp=3,zero=1", "dp=3,zero=2", "dp=3,zero=3", "dp=5,zero=3", "dp=13,zero=3",
			"dp=4,zero=1,shard=round-robin", "dp=4,zero=1,shard=contiguous", "dp=4,zero=1,shard=balanced", "dp=4,zero=3,shard=tensors",
			"dp=2,tp=2,pp=2,zero=1,shard=balanced", "dp=2,tp=2,pp=2,zero=3,shard=tensors", "dp=2,tp=4,zero=2,vocab=parallel", "dp=2,pp=4,zero=3", "dp=2,pp=2,zero=2,microbatches=4",
		}},
		{Config: "odd", Steps: 8, Plans: []string{"dp=4,zero=1", "dp=4,zero=2", "dp=4,zero=3"}, Change: sgd, Suffix: " sgd"},
	}
	many = append(many, long("dp=4,zero=1", "dp=4,zero=3", "dp=2,tp=4,zero=3"),
		wide("dp=16,zero=1", "dp=16,zero=2", "dp=16,zero=3", "dp=16,zero=1,shard=balanced"))
	return suite.Level(level, few, many, suite.Fixture{Config: "5M", Steps: 4, Plans: []string{"dp=4,zero=1", "dp=4,zero=2", "dp=4,zero=3", "dp=2,zero=1,shard=balanced"}})
}

func named(config string, _ int) suite.Fixture {
	return suite.Fixture{Config: config, Steps: 2, Plans: []string{"dp=2,zero=1", "dp=2,zero=2", "dp=2,zero=3"}}
}

// runs are a run and its control, unsharded on the same mesh. Elements tell where
// the two need not have the same bits.
func runs(o suite.Options, f suite.Fixture, on ...spec.Config) map[contract.Role]suite.Run {
	test := on[0]
	test.Recording.Capture = !test.Plan.SameBits(zero.Unsharded(test).Plan, test.Model)
	return suite.Beside(zero.Unsharded)(o, f, test)
}
