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
// default differs from it, and each clips in some steps and not in others.
func fixtures(level int) []fixture {
	out := []fixture{
		{config: "nano", suffix: " adamw", change: plain},
		{config: "odd", suffix: " adamw biased", change: biased},
		{config: "nano", suffix: " sgd", change: sgd, clauses: []string{"C-MODEL-001.1", "C-MODEL-001.3", "C-MODEL-001.4"}},
		{config: "nano"}, {config: "odd"},
	}
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
		if err := fit(&cfg, o.Level); err != nil {
			return []suite.Case{suite.Broken(f.config, err)}
		}
		c := Case(cfg.Model.Name+f.suffix, cfg, o)
		if c.Clauses = f.clauses; f.clauses != nil {
			c.Runs[contract.Test] = suite.Train(cfg, o)
		}
		out = append(out, c)
	}
	return out
}

// work is how many parameters times tokens the step has that is judged: 6e8 take a
// processor about a second.
func work(level int) int64 {
	return map[int]int64{1: 5e8, 2: 6e9, 3: 6e10}[max(level, 1)]
}

const (
	// maxElements bounds parameters times steps: four of each parameter's are kept in
	// memory.
	maxElements = 1 << 26
	// maxParams bounds the models whose elements are kept, of two steps at least.
	maxParams = 1 << 28
	// least is the shortest sequence that a large model is judged on, of few.
	least, few = 8, 3
)

// fit shortens sequences, the batch and the run of a large model: all formulas
// stay, there are fewer positions and rows. All elements are recorded.
func fit(c *spec.Config, level int) error {
	c.Evidence = spec.Evidence{Digests: true, Capture: true}
	n := c.Model.Params()
	if n > maxParams {
		return fmt.Errorf("config %s: %d parameters: the elements of at most %d are kept in memory", c.Model.Name, n, maxParams)
	}
	rows := work(level) / n
	if rows < int64(c.Sequences)*least && c.Sequences > few {
		c.Sequences, c.Blank = few, nil
	}
	c.Model.SeqLen = min(c.Model.SeqLen, max(least, int(rows)/c.Sequences))
	c.Steps = max(2, min(c.Steps, int(maxElements/n)))
	return nil
}

// Case is a run of a configuration of one rank with the activations of its last
// step.
func Case(name string, cfg spec.Config, o suite.Options) suite.Case {
	r := suite.Train(cfg, o)
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
	return suite.Case{Name: name, Runs: map[contract.Role]suite.Run{contract.Test: r}}
}
