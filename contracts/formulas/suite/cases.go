package suite

import (
	"context"
	"fmt"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// fixture is a configuration of one rank that is judged.
type fixture struct {
	config, suffix string
	change         func(*spec.Config) // of the preset
	clauses        []string           // that it is evidence for; nil is all
	judged         []int              // steps whose activations are recorded; none is the last one
	whole          bool               // sequence, and batch: it fits as it is
	at             suite.Later        // where the run begins
}

// steps of a case: in the last one, when norm weights are no longer 1, activations
// are recorded.
const steps = 3

// values is the clause that reads activations.
const values = "C-MODEL-001.2"

// tokens is the sequence length of the default cases.
const tokens = 11

// fixtures are the default cases of a level. Between them every field that has a
// default differs from it, and each clips in some steps and not in others.
func fixtures(level int) []fixture {
	out := []fixture{
		{config: "nano", suffix: " adamw", change: plain},
		{config: "odd", suffix: " adamw biased", change: biased},
		{config: "nano", suffix: " sgd", change: sgd, clauses: append([]string{"C-MODEL-001.1"}, moving...)},
		{config: "nano"}, {config: "odd"},
		{config: "nano", suffix: " of 72 steps", change: long, judged: []int{26, 48, lasting - 1}},
		{config: "odd", suffix: " of 140 tokens", change: wide},
	}
	out = append(out, bare()...)
	out = append(out, late()...)
	if level > 1 {
		out = append(out, fixture{config: "tiny"}, fixture{config: "5M"})
	}
	return out
}

// plain is untied, without biases, with several query heads to a key head.
func plain(c *spec.Config) {
	c.Model.SeqLen = tokens
	c.Optimizer.Warmup, c.Optimizer.Clip = 2, 2.38
}

// biased is tied and has all biases; constants are not the defaults.
func biased(c *spec.Config) {
	c.Model.SeqLen = tokens
	c.Model.LinearBias, c.Model.NormEps, c.Model.RopeTheta = true, 1e-3, 500
	o := &c.Optimizer
	o.Beta1, o.Beta2, o.Eps, o.Decay, o.LR = 0.85, 0.999, 1e-6, 0.2, 2e-3
	o.Warmup, o.Horizon, o.MinLR, o.Clip = 1, 9, 1e-4, 2.8
}

// sgd has momentum and decay of its own.
func sgd(c *spec.Config) {
	c.Model.SeqLen = tokens
	o := &c.Optimizer
	o.Name, o.LR, o.Momentum, o.Decay = "sgd", 0.1, 0.8, 0.05
	o.Warmup, o.Horizon, o.Clip = 2, 9, 2.1
}

// Of the long case: its steps, more than three times its horizon, and what its seed
// has beyond 32 bits.
const lasting, distant, above = 72, 22, 0x9e3779b9 << 32

// long takes so many steps of a small model that none of the corrections, rates and
// moments that come late goes unseen, from a seed of 64 bits.
func long(c *spec.Config) {
	c.Seed ^= above
	c.Steps = max(c.Steps, lasting)
	tiny(c)
	o := &c.Optimizer
	o.Beta1, o.Beta2, o.Warmup, o.Horizon = 0.98, 0.99, 3, distant
}

// wide has positions past 128, in heads of three angles.
func wide(c *spec.Config) {
	small(c)
	c.Sequences, c.Blank, c.Model.SeqLen, c.Model.HeadDim = 2, nil, 140, 6
}

// small is a model of one block with all of its parts.
func small(c *spec.Config) {
	m := &c.Model
	m.Layers, m.Hidden, m.Heads, m.KVHeads, m.HeadDim, m.Intermediate = 1, 4, 2, 1, 2, 4
	m.Groups = model.Groups{Tensor: 1, Data: 2}
}

// list makes the cases of options. Plans make none: what is judged is the single
// worker.
func list(o suite.Options) []suite.Case {
	all := fixtures(o.Level)
	if o.Config != "" {
		all = []fixture{{config: o.Config}}
		all = append(all, wholly(o)...)
	}
	var out []suite.Case
	for _, f := range all {
		cfg, err := suite.Preset(f.config, o, steps)
		if err != nil {
			return []suite.Case{suite.Broken("options", err)}
		}
		if f.change != nil {
			f.change(&cfg)
		}
		var less, lacks string
		if f.whole {
			record(&cfg)
		} else {
			less, lacks = fit(&cfg, o)
		}
		if f.at.Step > 0 {
			f.at.Until(&cfg, max(o.Steps, lately))
		}
		c := f.made(cfg, o)
		c.Less, c.Lacks = less, lacks
		out = append(out, c)
	}
	return out
}

// made is the case of a fixture's configuration.
func (f *fixture) made(cfg spec.Config, o suite.Options) suite.Case {
	c := suite.Case{Name: cfg.Model.Name + f.suffix, Clauses: f.clauses}
	judged := f.judged
	switch {
	case !c.Shows(values):
		judged = nil
	case judged == nil:
		judged = []int{cfg.Steps - 1}
	}
	c.Runs = map[contract.Role]suite.Run{contract.Test: recorded(cfg, o, f.at, judged)}
	return c
}

// Case is a run of a configuration of one rank with the activations of its last step.
func Case(name string, cfg spec.Config, o suite.Options) suite.Case {
	r := recorded(cfg, o, suite.Later{}, []int{cfg.Steps - 1})
	return suite.Case{Name: name, Runs: map[contract.Role]suite.Run{contract.Test: r}}
}

// recorded is a run of one rank that begins at a place, with the activations of the
// steps that are judged.
func recorded(cfg spec.Config, o suite.Options, at suite.Later, judged []int) suite.Run {
	r := at.Run(cfg, o)
	r.Key += fmt.Sprintf(" with the activations of steps %v", judged)
	r.Do = func(ctx context.Context, env suite.Env) (*trace.History, error) {
		rec := &recorder{only: judged, layers: cfg.Model.Layers}
		rec.attach(&env.Parts)
		h, err := at.Train(ctx, env, cfg)
		if h != nil {
			rec.into(h)
		}
		if err == nil && rec.err != nil {
			err = fmt.Errorf("reading activations: %w", rec.err)
		}
		return h, err
	}
	return r
}
