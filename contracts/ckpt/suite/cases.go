// Package suite runs contract C-CKPT-001.
package suite

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/lockstep-ml/lockstep/contracts/ckpt"
	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/core/train"
)

// Suite is the contract with its cases and mutants.
func Suite() *suite.Suite {
	return &suite.Suite{Contract: ckpt.Contract(), Cases: list, Mutants: mutants()}
}

// stored is the number of steps before a run is interrupted, and tokens the
// sequence length of fixtures: what a step computes is not in question here.
const stored, tokens = 2, 11

// afterSkip ends the names of cases in which an infinity makes a step before the
// checkpoint be skipped.
const afterSkip = " step 1 skipped"

// fixtures are the default cases of a level: plans that store a run and plans
// that resume it.
func fixtures(level int) []suite.Fixture {
	if level <= 1 {
		return []suite.Fixture{
			{Config: "nano", Steps: 4, Plans: []string{"dp=4,zero=3 then dp=2,pp=2", "tp=2,pp=2 then dp=8,zero=1"}},
			{Config: "odd", Steps: 4, Plans: []string{"pp=2 then dp=2,tp=2,zero=2", "dp=4,zero=1,shard=balanced then pp=3",
				"dp=2 then tp=2 then dp=4,zero=3"}}, // what is resumed last was stored by a run that was itself resumed
			{Config: "odd", Steps: 4, Plans: []string{"dp=2 then dp=4,zero=3"}, Suffix: afterSkip},
			wide("dp=16,zero=3 then dp=1"),
			far("dp=2,zero=1 then pp=2"),
		}
	}
	return []suite.Fixture{
		{Config: "nano", Steps: 8, Plans: []string{
			"dp=2 then dp=2", "dp=1 then dp=4,zero=3", "dp=4,zero=3 then tp=4", "tp=2 then pp=4", "tp=2,pp=2 then dp=8,zero=1",
			"dp=2,pp=2,zero=2 then dp=2,tp=2,vocab=parallel", "pp=2,schedule=interleaved,virtual=2 then dp=2,pp=2,zero=3", "dp=8,zero=1 then dp=1"}},
		{Config: "odd", Steps: 8, Plans: []string{
			"dp=4,zero=1,shard=balanced then pp=3", "pp=4 then dp=2,pp=2,zero=3", "tp=4,vocab=parallel then dp=4,zero=2",
			"dp=2,tp=2,zero=3 then tp=4", "dp=1 then tp=2,pp=2", "dp=4,zero=3,shard=tensors then dp=1"}},
		{Config: "odd", Steps: 8, Plans: []string{"dp=2 then dp=4,zero=3", "pp=2 then dp=4,zero=1"}, Suffix: afterSkip},
		wide("dp=16,zero=3 then dp=1", "dp=1 then dp=16,zero=1", "dp=16,zero=2 then tp=2,pp=2"),
		far("dp=2,zero=1 then pp=2", "tp=2 then dp=2 then dp=4,zero=3"),
	}
}

// wide has files of more ranks than one hexadecimal digit counts.
func wide(plans ...string) suite.Fixture {
	return suite.Fixture{Config: "nano", Steps: 4, Plans: plans, Suffix: " of 17 sequences", Change: func(c *spec.Config) {
		c.Model.Groups.Data, c.Model.SeqLen, c.Sequences = 16, 5, 17
	}}
}

// distant is where runs begin whose checkpoints are of the last step that eight digits
// count and of the next. Steps were skipped before.
var distant = suite.Later{Step: 1e8 - 2, Taken: 1e8 - 7}

// far begins there. Its schedule goes on.
func far(plans ...string) suite.Fixture {
	return suite.Fixture{Config: "odd", Steps: 4, Plans: plans, Suffix: distant.Suffix(), At: distant, Change: func(c *spec.Config) {
		c.Optimizer.Beta2, c.Optimizer.Horizon = 0.9999999, 3e8
	}}
}

// list makes the cases of options.
func list(o suite.Options) []suite.Case {
	if suite.Foreign(o) {
		return nil
	}
	g := suite.Grid{Fixtures: fixtures, Named: named, Prepare: prepare, Exact: true, With: with, Runs: runs,
		Clauses: []string{"C-CKPT-001.1", "C-CKPT-001.2", "C-CKPT-001.3", "C-CKPT-001.4"}}
	own := append(g.Cases(o), storing(o)...)
	if len(own) == 0 {
		return nil // none of the plans that were asked for
	}
	return append(own, goldenCase(nil, nil), damaged(o, nil))
}

func named(config string, _ int) suite.Fixture {
	return suite.Fixture{Config: config, Steps: 4, Plans: []string{"dp=2 then dp=1", "dp=1 then dp=2,zero=1"}}
}

// with lets a plan store for a single worker and resume its run.
func with(p string) []string { return []string{p + suite.Then + "dp=1", "dp=1" + suite.Then + p} }

// prepare lets a step follow the stored ones.
func prepare(o suite.Options, c *spec.Config) {
	c.Steps = max(c.Steps, stored+1)
	if o.Config == "" {
		c.Model.SeqLen = tokens
	}
}

// resumption is a run that is interrupted: two configurations that differ in
// their plans only.
type resumption struct {
	from, to spec.Config
	// via are plans on which the run goes on from the checkpoint before, for a step
	// each, and is stored again.
	via  []spec.Config
	at   suite.Later // where the run begins that is interrupted
	skip bool
	// between may change the checkpoint of a step below root; resumed breaks the
	// second run. Mutants have them.
	between func(root string, step int) error
	resumed fault.Fault
}

// runs are a resumption and its control, the uninterrupted run of a single
// worker.
func runs(o suite.Options, f suite.Fixture, on ...spec.Config) map[contract.Role]suite.Run {
	last := len(on) - 1
	for i := range on { // a step is stored for each plan between, and one follows
		on[i].Steps = max(on[i].Steps, f.At.Step+stored+last)
	}
	x := resumption{from: on[0], via: on[1:last], to: on[last], at: f.At, skip: f.Suffix == afterSkip}
	control := f.At.Run(compare.Single(x.from), o)
	if x.skip {
		control.Key += " with an infinity"
		control.Parts = fault.Plant(*control.Config, 1, 1, float32(math.Inf(1)))
	}
	return map[contract.Role]suite.Run{contract.Test: {Config: &x.to, First: x.at.Step, Do: x.run}, contract.Control: control}
}

// run stores the first steps in a directory of the run and gives the history of
// the run that goes on from there.
func (x resumption) run(ctx context.Context, env suite.Env) (h *trace.History, err error) {
	root, release, err := env.Dir()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, release()) }()
	if err := x.store(ctx, env, root); err != nil {
		return nil, fmt.Errorf("the run to be stored: %w", err)
	}
	if x.resumed != nil {
		x.resumed(&env.Parts)
	}
	return env.Resume(ctx, x.to, root)
}

// store makes the checkpoints of the first steps.
func (x resumption) store(ctx context.Context, env suite.Env, root string) error {
	cfg := x.from
	cfg.Steps = x.at.Step + stored
	if x.skip {
		fault.Plant(cfg, 1, 1, float32(math.Inf(1)))(&env.Parts)
	}
	env.Parts.Checkpoints = train.Checkpoints{Dir: root, Every: 1}
	if _, err := x.at.Train(ctx, env, cfg); err != nil {
		return err
	}
	for i, cfg := range x.via {
		cfg.Steps = x.at.Step + stored + 1 + i
		if _, err := env.Resume(ctx, cfg, root); err != nil {
			return fmt.Errorf("on %s: %w", cfg.Plan, err)
		}
	}
	if x.between == nil {
		return nil
	}
	return env.Once(ctx, func() error { return x.between(root, x.at.Step+stored+len(x.via)) })
}
