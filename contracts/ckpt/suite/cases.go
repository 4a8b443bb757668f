package suite

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"

	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/checkpoint"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/core/train"
)

// fixture is a configuration and the pairs of plans that store it and resume it.
type fixture struct {
	config string
	steps  int
	pairs  [][2]string
	skip   bool // an infinity makes a step before the checkpoint be skipped
}

// stored is the number of steps before a run is interrupted, and tokens the
// sequence length of fixtures: what a step computes is not in question here.
const stored, tokens = 2, 11

func fixtures(level int) []fixture {
	if level <= 1 {
		return []fixture{
			{config: "nano", steps: 4, pairs: [][2]string{{"dp=4,zero=3", "dp=2,pp=2"}, {"tp=2,pp=2", "dp=8,zero=1"}}},
			{config: "odd", steps: 4, pairs: [][2]string{{"pp=2", "dp=2,tp=2,zero=2"}, {"dp=4,zero=1,shard=balanced", "pp=3"}}},
			{config: "odd", steps: 4, pairs: [][2]string{{"dp=2", "dp=4,zero=3"}}, skip: true},
		}
	}
	return []fixture{
		{config: "nano", steps: 8, pairs: [][2]string{
			{"dp=2", "dp=2"}, {"dp=1", "dp=4,zero=3"}, {"dp=4,zero=3", "tp=4"}, {"tp=2", "pp=4"}, {"tp=2,pp=2", "dp=8,zero=1"},
			{"dp=2,pp=2,zero=2", "dp=2,tp=2,vocab=parallel"}, {"pp=2,schedule=interleaved,virtual=2", "dp=2,pp=2,zero=3"}, {"dp=8,zero=1", "dp=1"}}},
		{config: "odd", steps: 8, pairs: [][2]string{
			{"dp=4,zero=1,shard=balanced", "pp=3"}, {"pp=4", "dp=2,pp=2,zero=3"}, {"tp=4,vocab=parallel", "dp=4,zero=2"},
			{"dp=2,tp=2,zero=3", "tp=4"}, {"dp=1", "tp=2,pp=2"}, {"dp=4,zero=3,shard=tensors", "dp=1"}}},
		{config: "odd", steps: 8, pairs: [][2]string{{"dp=2", "dp=4,zero=3"}, {"pp=2", "dp=4,zero=1"}}, skip: true},
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
		cfg.Steps = max(cfg.Steps, stored+1)
		if o.Config == "" {
			cfg.Model.SeqLen = tokens
		}
		for _, pair := range f.pairs {
			plans := suite.Exact(cfg, pair[:])
			if len(plans) == 2 {
				out = append(out, resumption{from: compare.On(cfg, plans[0]), to: compare.On(cfg, plans[1]), skip: f.skip}.one(o))
			}
		}
	}
	return append(out, damaged(o, nil))
}

// choose applies the options' configuration and plans: each plan that promises
// the single worker's bits stores for a single worker and resumes its run. Where
// the configuration is promised that by none, the default ones remain.
func choose(o suite.Options) []fixture {
	all := fixtures(o.Level)
	if o.Config != "" {
		all = []fixture{{config: o.Config, steps: 4, pairs: [][2]string{{"dp=2", "dp=1"}, {"dp=1", "dp=2,zero=1"}}}}
	}
	var asked []fixture
	for _, f := range all {
		cfg, err := spec.Preset(f.config)
		if err != nil {
			return all // a case says so
		}
		f.pairs = nil
		for _, p := range suite.Exact(cfg, o.Plans) {
			f.pairs = append(f.pairs, [2]string{p.String(), "dp=1"}, [2]string{"dp=1", p.String()})
		}
		if len(f.pairs) > 0 {
			asked = append(asked, f)
		}
	}
	if len(asked) > 0 {
		return asked
	}
	return all
}

// resumption is a run that is interrupted: two configurations that differ in
// their plans only.
type resumption struct {
	from, to spec.Config
	skip     bool
	// between may change the checkpoint of a step below root; resumed breaks the
	// second run. Mutants have them.
	between func(root string, step int) error
	resumed fault.Fault
}

// one is the case of a resumption. The control is the uninterrupted run of a
// single worker.
func (x resumption) one(o suite.Options) suite.Case {
	name := fmt.Sprintf("%s then %s", suite.Name(x.from), x.to.Plan)
	control := suite.Train(compare.Single(x.from), o)
	if x.skip {
		name += " step 1 skipped"
		control.Key += " with an infinity"
		control.Parts = fault.Plant(*control.Config, 1, 1, float32(math.Inf(1)))
	}
	to := x.to
	return suite.Case{Name: name, Clauses: []string{"C-CKPT-001.1", "C-CKPT-001.2", "C-CKPT-001.3", "C-CKPT-001.4"},
		Runs: map[contract.Role]suite.Run{
			contract.Test:    {Config: &to, Do: x.run},
			contract.Control: control,
		}}
}

// run stores the first steps in a temporary directory and gives the history of
// the run that goes on from there.
func (x resumption) run(ctx context.Context, env suite.Env) (h *trace.History, err error) {
	text, err := env.Text(x.from.Text)
	if err != nil {
		return nil, err
	}
	root, err := os.MkdirTemp("", "lockstep-checkpoint-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(root)) }()
	if err := x.store(ctx, env, text, root); err != nil {
		return nil, fmt.Errorf("the run to be stored: %w", err)
	}
	c, err := checkpoint.Open(root)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	parts := env.Parts
	if x.resumed != nil {
		x.resumed(&parts)
	}
	parts.Checkpoints.Resume = c
	out, err := launch.Local(ctx, x.to, text, parts)
	if out == nil {
		return nil, err
	}
	return out.History, err
}

// store makes the checkpoints of the first steps.
func (x resumption) store(ctx context.Context, env suite.Env, text data.Text, root string) error {
	cfg, parts := x.from, env.Parts
	cfg.Steps = stored
	if x.skip {
		fault.Plant(cfg, 1, 1, float32(math.Inf(1)))(&parts)
	}
	parts.Checkpoints = train.Checkpoints{Dir: root, Every: 1}
	if _, err := launch.Local(ctx, cfg, text, parts); err != nil || x.between == nil {
		return err
	}
	return x.between(root, stored)
}
