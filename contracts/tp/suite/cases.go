// Package suite runs contract C-TP-001.
package suite

import (
	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/contracts/tp"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// Suite is the contract with its cases and mutants.
func Suite() *suite.Suite {
	grid := suite.Grid{Fixtures: fixtures, Named: split, Runs: suite.Beside(compare.Unsplit),
		Prepare: func(_ suite.Options, c *spec.Config) { c.Recording.Taps = true }}
	return &suite.Suite{Contract: tp.Contract(), Cases: grid.Cases, Mutants: mutants()}
}

// biased unties the head and gives every linear layer a bias.
func biased(c *spec.Config) { c.Model.Tied, c.Model.LinearBias = false, true }

// oneHead leaves one KV head, of which four ranks have a copy, and clips.
func oneHead(c *spec.Config) {
	c.Model.Layers, c.Model.SeqLen, c.Model.KVHeads, c.Optimizer.Clip = 2, 11, 1, 1
}

// copied ends the names of cases with one KV head.
const copied = " with one KV head"

// long has steps past the warm-up and over the end of the text, where ranks hold
// copies of KV heads and have replicas besides.
func long(plans ...string) suite.Fixture {
	return suite.Fixture{Config: "odd", Steps: 10, Epoch: 7, Plans: plans, Suffix: suite.Epochs,
		Change: func(c *spec.Config) { c.Model.SeqLen = 11 }}
}

// fixtures are the default cases of a level. tp=2 shows little of the shape of a
// tree; odd on tp=4 has fewer KV heads than ranks, and an uneven vocabulary.
func fixtures(level int) []suite.Fixture {
	few := []suite.Fixture{
		{Config: "nano", Steps: 2, Plans: []string{"tp=2", "tp=4,vocab=parallel", "dp=2,tp=2"}},
		{Config: "odd", Steps: 2, Plans: []string{"tp=2", "tp=4,vocab=parallel", "dp=2,tp=2,pp=2,zero=1,vocab=parallel"}},
		{Config: "odd", Steps: 2, Plans: []string{"tp=2,vocab=parallel"}, Change: biased, Suffix: " untied with linear biases"},
		{Config: "odd", Steps: 2, Plans: []string{"tp=4"}, Change: oneHead, Suffix: copied},
		long("dp=2,tp=4"),
	}
	many := []suite.Fixture{
		{Config: "nano", Steps: 8, Plans: []string{"tp=2", "tp=4", "tp=4,vocab=parallel", "dp=2,tp=2", "dp=4,tp=2,zero=2", "tp=2,pp=2,vocab=parallel", "dp=3,tp=2", "dp=4,tp=2,comm=ring"}},
		{Config: "odd", Steps: 8, Plans: []string{"tp=2,vocab=parallel", "tp=4", "tp=4,vocab=parallel,microbatches=8", "dp=2,tp=4,zero=3",
			"dp=2,tp=2,pp=2,zero=1,vocab=parallel"}},
		{Config: "odd", Steps: 4, Plans: []string{"tp=2", "tp=4,vocab=parallel"}, Change: biased, Suffix: " untied with linear biases"},
	}
	many = append(many, long("dp=2,tp=4", "dp=2,tp=4,pp=2,vocab=parallel", "tp=4,microbatches=12"))
	return suite.Level(level, few, many, suite.Fixture{Config: "5M", Steps: 2, Plans: []string{"tp=4,vocab=parallel"},
		Change: func(c *spec.Config) { c.Sequences = 4 }, Suffix: " of 4 sequences"})
}

// split has plans that a configuration allows: over two ranks, and over all of
// its groups.
func split(config string, _ int) suite.Fixture {
	f := suite.Fixture{Config: config, Steps: 2, Plans: []string{"tp=2"}}
	if c, err := model.Named(config); err == nil && c.Groups.Tensor >= 4 {
		f.Plans = append(f.Plans, "tp=4,vocab=parallel")
	}
	return f
}
