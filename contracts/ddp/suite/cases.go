// Package suite runs contract C-DDP-001.
package suite

import (
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/ddp"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// Suite is the contract with its cases and mutants.
func Suite() *suite.Suite {
	grid := suite.Grid{Fixtures: fixtures, Named: named, Runs: suite.Beside(compare.Single)}
	return &suite.Suite{Contract: ddp.Contract(), Cases: grid.Cases, Mutants: mutants()}
}

// of makes a global batch of n sequences.
func of(n int) func(*spec.Config) { return func(c *spec.Config) { c.Sequences = n } }

// short cuts the sequences: ring and star are judged step by step, for which the
// oracle computes everything again, and what they reduce is as long as ever.
func short(c *spec.Config) { c.Model.SeqLen, c.Sequences = 3, 8 }

// many makes a small model of 32 logical workers, of whom n have a sequence: on one
// rank the binary counter that adds them has all its levels, and where n is no power of
// two the tree lacks leaves on several.
func many(n int) func(*spec.Config) {
	return func(c *spec.Config) {
		c.Model.Layers, c.Model.Hidden, c.Model.Intermediate, c.Model.SeqLen, c.Model.Groups.Data = 1, 8, 8, 4, 32
		c.Sequences, c.Blank = n, nil
	}
}

// oneHead leaves one KV head, of which four ranks of every replica have a copy, and clips.
func oneHead(c *spec.Config) {
	c.Model.Layers, c.Model.SeqLen, c.Model.KVHeads, c.Optimizer.Clip = 2, 5, 1, 1
}

// fixtures are the default cases of a level. dp=2 proves nothing about the
// shape of the tree, so there is always a larger one; nano with five sequences
// has logical workers, and one whole rank, without data; dp=3 divides nothing.
// In products each data-parallel group reduces another slice or stage; odd on two
// stages has its tied embedding on both.
func fixtures(level int) []suite.Fixture {
	few := []suite.Fixture{
		{Config: "nano", Steps: 2, Plans: []string{"dp=2", "dp=4", "dp=8", "dp=3"}},
		{Config: "odd", Steps: 2, Plans: []string{"dp=2", "dp=4"}},
		{Config: "nano", Steps: 2, Plans: []string{"dp=4"}, Change: of(5), Suffix: " of 5 sequences"},
		{Config: "nano", Steps: 2, Plans: []string{"dp=2,tp=2,pp=2", "dp=2,tp=2,zero=1"}},
		{Config: "odd", Steps: 2, Plans: []string{"dp=2,pp=2", "dp=2,tp=2,vocab=parallel"}},
		{Config: "odd", Steps: 2, Plans: []string{"dp=2,tp=4,zero=1"}, Change: oneHead, Suffix: " with one KV head"},
		{Config: "nano", Steps: 2, Plans: []string{"dp=4"}, Change: many(32), Suffix: " of 32 workers"},
		{Config: "nano", Steps: 2, Plans: []string{"dp=8,zero=2"}, Change: many(21), Suffix: " of 21 workers"},
		{Config: "nano", Steps: 2, Plans: []string{"dp=4,comm=ring", "dp=3,comm=star"}, Change: short, Suffix: " of short sequences"},
	}
	more := []suite.Fixture{
		{Config: "nano", Steps: 20, Plans: []string{"dp=2", "dp=4", "dp=8", "dp=2,microbatches=8"}},
		{Config: "nano", Steps: 4, Plans: []string{"dp=3", "dp=4,comm=ring", "dp=3,comm=star"}},
		{Config: "odd", Steps: 20, Plans: []string{"dp=2", "dp=4", "dp=2,microbatches=6"}},
		{Config: "odd", Steps: 4, Plans: []string{"dp=3", "dp=5"}},
		{Config: "nano", Steps: 8, Plans: []string{"dp=4", "dp=2"}, Change: of(5), Suffix: " of 5 sequences"},
		{Config: "nano", Steps: 8, Plans: []string{
			"dp=2,tp=2,pp=2", "dp=2,tp=4,vocab=parallel", "dp=4,pp=4", "dp=2,pp=2,schedule=interleaved,virtual=2",
			"dp=4,zero=1,shard=balanced", "dp=2,tp=2,zero=1", "dp=4,tp=2,zero=2", "dp=2,tp=2,pp=2,zero=3", "dp=8,zero=3,microbatches=2",
		}},
		{Config: "odd", Steps: 8, Plans: []string{
			"dp=2,tp=2,pp=2,vocab=parallel", "dp=4,pp=3", "dp=2,pp=2,schedule=interleaved,virtual=2,zero=1", "dp=4,tp=2,zero=2,vocab=parallel", "dp=2,pp=2,zero=3,shard=tensors",
		}},
		{Config: "nano", Steps: 2, Plans: []string{"dp=3,tp=2,pp=2", "dp=3,tp=2,zero=2"}, Suffix: " of two steps"},
		{Config: "5M", Steps: 2, Plans: []string{"dp=2"}, Change: of(4), Suffix: " of 4 sequences"},
	}
	return suite.Level(level, few, more,
		suite.Fixture{Config: "nano", Steps: 2000, Plans: []string{"dp=8"}, Suffix: " soak"},
		suite.Fixture{Config: "350M", Steps: 2, Plans: []string{"dp=2"}, Change: of(4), Suffix: " of 4 sequences"})
}

// named runs a configuration for as long as its own fixture does.
func named(config string, level int) suite.Fixture {
	out := suite.Fixture{Config: config, Steps: 2, Plans: []string{"dp=2", "dp=4"}}
	all := fixtures(level)
	if i := slices.IndexFunc(all, func(f suite.Fixture) bool { return f.Config == config && f.Change == nil }); i >= 0 {
		out.Steps = all[i].Steps
	}
	return out
}
