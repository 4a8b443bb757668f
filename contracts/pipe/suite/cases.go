// Package suite runs contract C-PIPE-001.
package suite

import (
	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/pipe"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// Suite is the contract with its cases and mutants.
func Suite() *suite.Suite {
	grid := suite.Grid{Fixtures: fixtures, Named: stages, Runs: suite.Beside(compare.Unsplit)}
	return &suite.Suite{Contract: pipe.Contract(), Cases: grid.Cases, Mutants: mutants()}
}

// oneWorker computes the whole batch as one logical worker, so that a step may
// have fewer micro-batches than stages.
func oneWorker(c *spec.Config) { c.Model.Groups.Data = 1 }

// long has steps past the warm-up and over the end of the text, of a tied head on
// other ranks than the embedding and of more micro-batches than a short run has.
func long(plans ...string) suite.Fixture {
	return suite.Fixture{Config: "odd", Steps: 10, Epoch: 7, Plans: plans, Suffix: suite.Epochs,
		Change: func(c *spec.Config) { c.Model.SeqLen = 11 }}
}

// fixtures are the default cases of a level. odd has uneven micro-batches, some
// of which are shorter than the first, a tied head, and on three stages uneven
// ones.
func fixtures(level int) []suite.Fixture {
	few := []suite.Fixture{
		{Config: "nano", Steps: 2, Plans: []string{"pp=2", "pp=4", "pp=4,schedule=gpipe", "pp=2,schedule=interleaved,virtual=2"}},
		{Config: "odd", Steps: 2, Plans: []string{"pp=3", "pp=4,microbatches=8", "dp=2,pp=2", "pp=2,schedule=interleaved,virtual=2,microbatches=8"}},
		{Config: "nano", Steps: 1, Plans: []string{"pp=4,microbatches=1", "pp=3,microbatches=2"}, Change: oneWorker, Suffix: " of one worker"},
		long("pp=2,microbatches=12"),
	}
	many := []suite.Fixture{
		{Config: "nano", Steps: 8, Plans: []string{"pp=2", "pp=3", "pp=4", "pp=4,schedule=gpipe", "pp=2,schedule=interleaved,virtual=2",
			"dp=2,pp=2,zero=1", "dp=2,tp=2,pp=2,vocab=parallel", "dp=3,pp=2", "dp=4,pp=2,comm=star", "dp=4,pp=2,zero=1,comm=ring"}},
		{Config: "odd", Steps: 8, Plans: []string{"pp=2", "pp=3", "pp=4,microbatches=8", "pp=4,schedule=gpipe,microbatches=12", "dp=2,pp=2",
			"pp=2,schedule=interleaved,virtual=2,microbatches=8", "dp=2,pp=2,schedule=interleaved,virtual=2", "dp=2,tp=2,pp=2", "dp=2,pp=4,zero=3"}},
		{Config: "nano", Steps: 4, Plans: []string{"pp=4,microbatches=1", "pp=3,microbatches=2", "pp=4,microbatches=16",
			"pp=2,schedule=interleaved,virtual=2,microbatches=3"}, Change: oneWorker, Suffix: " of one worker"},
	}
	many = append(many, long("pp=2,microbatches=12", "pp=4,schedule=gpipe,microbatches=12", "dp=2,pp=2,zero=3"))
	return suite.Level(level, few, many, suite.Fixture{Config: "5M", Steps: 2, Plans: []string{"pp=4,microbatches=8"},
		Change: func(c *spec.Config) { c.Sequences = 8 }, Suffix: " of 8 sequences"})
}

// stages has plans that a configuration allows.
func stages(config string, _ int) suite.Fixture {
	f := suite.Fixture{Config: config, Steps: 2, Plans: []string{"pp=2"}}
	if c, err := model.Named(config); err == nil && c.Layers >= 4 {
		f.Plans = append(f.Plans, "pp=4", "pp=2,schedule=interleaved,virtual=2")
	}
	return f
}
