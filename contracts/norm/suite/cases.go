// Package suite runs contract C-NORM-001.
package suite

import (
	"math"

	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/contracts/norm"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/optim"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// Suite is the contract with its cases and mutants.
func Suite() *suite.Suite {
	grid := suite.Grid{Fixtures: fixtures, Named: named, Prepare: prepare, Exact: true, Runs: runs}
	return &suite.Suite{Contract: norm.Contract(), Cases: grid.Cases, Mutants: mutants()}
}

// planting lists the steps of the data in which a value that is not finite is planted:
// between others, so that there is a state to keep and a step that goes on. Long runs
// skip again and again, in a row and apart.
func planting() []int { return []int{skipped, 4, 9, 10, 11, 24, 37, 38, 55} }

// skipped is the first of them.
const skipped = 1

// tokens is the sequence length: what a step computes is not in question here.
const tokens = 11

// skips says in the name of every case what happens in it; that of the long one says
// how long it is.
const skips, lasts = " step 1 skipped", " of 72 steps"

// Of the long case: its steps, those of an epoch of its text, and its horizon, which
// lies below half of the steps that are not skipped.
const steps, epoch, horizon = 72, 7, 22

// long makes a run of many steps cheap, and lets it move at every one of them: the
// corrections of both moments are far from 1 to its end.
func long(c *spec.Config) {
	c.Steps = max(c.Steps, steps)
	c.Model.Layers, c.Model.Hidden, c.Model.Heads, c.Model.KVHeads, c.Model.HeadDim, c.Model.Intermediate, c.Model.SeqLen = 1, 2, 2, 1, 2, 4, 5
	c.Model.Groups = model.Groups{Tensor: 1, Data: 2}
	c.Sequences = 4
	o := &c.Optimizer
	o.LR, o.Beta1, o.Beta2, o.Clip, o.Warmup, o.Horizon, o.MinLR = 3e-3, 0.98, 0.99, 0.65, 3, horizon, 5e-4
}

// unclipped ends the names of cases whose optimizer clips nothing, does not decay, warms
// up in no step and keeps its rate: the norm is computed, and decides, all the same.
const unclipped = " without a clip" + skips

// bare is that optimizer, of a small model.
func bare(c *spec.Config) {
	c.Model.Layers, c.Model.SeqLen, c.Sequences = 1, 5, 8
	c.Optimizer = optim.Config{Name: "sgd", LR: 0.05, Momentum: 0.8, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: optim.NoDecay}
}

// oneHead leaves one KV head, of which four ranks have a copy that must count once, and
// clips by the norm.
func oneHead(c *spec.Config) {
	c.Model.Layers, c.Model.KVHeads, c.Optimizer.Clip = 2, 1, 1
}

// copied is in the names of cases with one KV head.
const copied = " with one KV head,"

// fixtures are the default cases of a level.
func fixtures(level int) []suite.Fixture {
	if level <= 1 {
		return []suite.Fixture{
			{Config: "nano", Steps: 3, Plans: []string{"dp=8,zero=1", "dp=2,pp=2"}, Suffix: skips},
			{Config: "odd", Steps: 3, Plans: []string{"dp=4", "dp=2,zero=3", "dp=2,tp=2,zero=2"}, Suffix: skips},
			{Config: "nano", Steps: 3, Plans: []string{"dp=2,zero=1"}, Change: bare, Suffix: unclipped},
			{Config: "odd", Steps: 3, Plans: []string{"tp=4"}, Change: oneHead, Suffix: copied + skips},
			{Config: "nano", Steps: steps, Plans: []string{"dp=2"}, Change: long, Suffix: lasts, Epoch: epoch},
		}
	}
	return []suite.Fixture{
		{Config: "nano", Steps: 8, Plans: []string{"dp=8", "dp=8,zero=1", "dp=4,zero=2,microbatches=4", "dp=4,zero=3", "tp=4", "pp=4", "dp=2,tp=2,pp=2,zero=1", "dp=2,pp=2,zero=3,schedule=interleaved,virtual=2"}, Suffix: skips},
		{Config: "odd", Steps: 8, Plans: []string{"dp=4", "dp=4,zero=1,shard=balanced", "dp=2,zero=2,microbatches=4", "dp=4,zero=3,shard=tensors", "tp=4,vocab=parallel", "pp=3", "dp=2,tp=2,pp=2", "dp=2,tp=2,zero=3"}, Suffix: skips},
		{Config: "nano", Steps: 8, Plans: []string{"dp=2,zero=1", "dp=2,tp=2,zero=3", "dp=4"}, Change: bare, Suffix: unclipped},
		{Config: "nano", Steps: steps, Plans: []string{"dp=2", "dp=2,zero=1"}, Change: long, Suffix: lasts, Epoch: epoch},
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
	control.Recording.Capture = control.Model.Params() <= captured
	return map[contract.Role]suite.Run{contract.Test: planted(on[0], o), contract.Control: planted(control, o)}
}

// captured is the largest model, in parameters, of which the control records all
// elements: 4 times 32 MiB a step.
const captured = 1 << 23

// planted is a run with values planted that are not finite.
func planted(cfg spec.Config, o suite.Options) suite.Run {
	r := suite.Train(cfg, o)
	r.Key += " with infinities"
	inf := math.Inf(1)
	r.Parts = plant(cfg, float32(inf), float32(math.NaN()), float32(-inf))
	return r
}

// plant plants the values, in turn, in the first block's gradient in the steps to be
// skipped.
func plant(cfg spec.Config, values ...float32) fault.Fault {
	var all []fault.Fault
	for i, step := range planting() {
		if step < cfg.Steps {
			all = append(all, fault.Plant(cfg, step, 1+i%2, values[i%len(values)]))
		}
	}
	return fault.All(all...)
}
