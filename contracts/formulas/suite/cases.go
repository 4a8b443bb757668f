package suite

import (
	"context"
	"fmt"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// fixture is a configuration of one rank that is judged.
type fixture struct {
	config, suffix string
	change         func(*spec.Config) // of the preset
	clauses        []string           // that it is evidence for; nil is all
}

// steps of a case: in the last one, when norm weights are no longer 1, activations
// are recorded.
const steps = 3

// tokens is the sequence length of the default cases.
const tokens = 11

// fixtures are the default cases of a level. Between them every field that has a
// default differs from it.
func fixtures(level int) []fixture {
	out := []fixture{
		{config: "nano", suffix: " adamw", change: plain},
		{config: "odd", suffix: " adamw biased", change: biased},
		{config: "nano", suffix: " sgd", change: sgd, clauses: []string{"C-MODEL-001.1", "C-MODEL-001.3", "C-MODEL-001.4"}},
	}
	if level > 1 {
		out = append(out, fixture{config: "nano"}, fixture{config: "odd"}, fixture{config: "tiny"}, fixture{config: "5M"})
	}
	return out
}

// plain is untied, without biases, with several query heads to a key head.
func plain(c *spec.Config) {
	c.Model.SeqLen = tokens
	c.Optimizer.Warmup = 2
}

// biased is tied and has all biases; constants are not the defaults.
func biased(c *spec.Config) {
	c.Model.SeqLen = tokens
	c.Model.LinearBias, c.Model.NormEps, c.Model.RopeTheta = true, 1e-3, 500
	o := &c.Optimizer
	o.Beta1, o.Beta2, o.Eps, o.Decay, o.LR = 0.85, 0.97, 1e-6, 0.2, 2e-3
	o.Warmup, o.Horizon, o.MinLR = 1, 9, 1e-4
}

// sgd has momentum and decay of its own.
func sgd(c *spec.Config) {
	c.Model.SeqLen = tokens
	o := &c.Optimizer
	o.Name, o.LR, o.Momentum, o.Decay = "sgd", 0.1, 0.8, 0.05
	o.Warmup, o.Horizon = 2, 9
}

// list makes the cases of options. Plans make none: what is judged is the single
// worker.
func list(o suite.Options) []suite.Case {
	all := fixtures(o.Level)
	if o.Config != "" {
		all = []fixture{{config: o.Config}}
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
		fit(&cfg, o.Level)
		out = append(out, suite.Case{Name: cfg.Model.Name + f.suffix, Clauses: f.clauses,
			Runs: map[contract.Role]suite.Run{contract.Test: recorded(cfg, o, f.clauses == nil)}})
	}
	return out
}

// work is how many parameters times tokens a step has that is judged, at most: a
// second or so of evaluation on one processor for each 5e7.
func work(level int) int64 {
	return map[int]int64{1: 5e7, 2: 6e9, 3: 5e10}[level]
}

// maxElements bounds parameters times steps: four of each parameter's are kept in
// memory.
const maxElements = 1 << 26

// fit shortens sequences, and the batch, of a large model, and its steps: all
// formulas stay, positions and rows are fewer. All elements are recorded.
func fit(c *spec.Config, level int) {
	c.Evidence = spec.Evidence{Digests: true, Capture: true}
	n := c.Model.Params()
	rows := max(work(max(level, 1))/n, 1)
	if rows < int64(c.Sequences*c.Model.SeqLen) && rows < int64(c.Sequences)*tokens {
		c.Sequences, c.Blank = min(c.Sequences, 3), nil
	}
	c.Model.SeqLen = int(max(2, min(int64(c.Model.SeqLen), rows/int64(c.Sequences))))
	c.Steps = max(2, min(c.Steps, int(maxElements/n)))
}

// recorded is a run with the elements of all state, and, with taps, the last
// step's activations.
func recorded(cfg spec.Config, o suite.Options, taps bool) suite.Run {
	r := suite.Train(cfg, o)
	if !taps {
		return r
	}
	r.Key += " with the activations of its last step"
	r.Do = func(ctx context.Context, env suite.Env) (*trace.History, error) {
		rec := &recorder{only: cfg.Steps - 1, layers: cfg.Model.Layers}
		rec.attach(&env.Parts)
		h, err := env.Train(ctx, cfg)
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
