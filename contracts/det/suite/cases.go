// Package suite runs contract C-DET-001.
package suite

import (
	"cmp"
	"context"
	"runtime"

	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/det"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/golden"
)

// Suite is the contract with its cases and mutants.
func Suite() *suite.Suite {
	return &suite.Suite{Contract: det.Contract(), Cases: list, Mutants: mutants()}
}

// list makes the cases of options: repeated runs, runs on several plans, golden
// runs, recorded schedules.
func list(o suite.Options) []suite.Case {
	var out []suite.Case
	configs := []string{"nano", "odd"}
	if o.Config != "" {
		configs = []string{o.Config}
	}
	for _, name := range configs {
		cfg, err := suite.Preset(name, o, steps(o.Level))
		if err != nil {
			return []suite.Case{suite.Broken("options", err)}
		}
		if on := parallel(cfg, o); len(on) > 0 {
			out = append(out, again(cfg, on, o), plans(cfg, on, o))
		}
	}
	if len(out) == 0 {
		return nil // none of the plans that were asked for
	}
	return append(append(out, goldens(o)...), schedules(o)...)
}

// steps of a case that compares runs: two, or as many as golden runs of fixtures.
func steps(level int) int {
	if level > 1 {
		return golden.FingerprintSteps
	}
	return 2
}

// again runs a plan twice, and once with another seed.
func again(cfg spec.Config, on []plan.Plan, o suite.Options) suite.Case {
	cfg = compare.On(cfg, on[0])
	second := suite.Train(cfg, o)
	second.Key += " again"
	reseeded := cfg
	reseeded.Seed++
	return suite.Case{
		Name:    suite.Name(cfg) + " again",
		Clauses: []string{"C-DET-001.1", "C-DET-001.2"},
		Runs: map[contract.Role]suite.Run{
			contract.Test: suite.Train(cfg, o), contract.Again: second, contract.Other: suite.Train(reseeded, o)},
	}
}

// parallel lists the plans to compare with one rank: those of the options that
// promise its bits, or, where it names none, all data-parallel sizes that divide
// the groups, and what fits of products with tensor and pipeline parallelism and
// ZeRO.
func parallel(cfg spec.Config, o suite.Options) []plan.Plan {
	var out []plan.Plan
	asked, _ := suite.Plans(o.Plans) // the options were checked
	for _, p := range asked {
		if p.Exact(cfg.Model) && p.Validate(cfg.Model, cfg.Sequences) == nil {
			out = append(out, p)
		}
	}
	if len(asked) > 0 {
		return out
	}
	for dp := min(4, cfg.Model.Groups.Data); dp > 1; dp /= 2 {
		out = append(out, plan.Plan{DP: dp})
	}
	for _, p := range []plan.Plan{
		{DP: 2, TP: 2, PP: 2, Zero: 1, Vocab: plan.VocabParallel},
		{DP: 2, PP: 2, Zero: 3, Schedule: plan.Interleaved, Virtual: 2},
		{TP: 4},
	} {
		if p.Validate(cfg.Model, cfg.Sequences) == nil {
			out = append(out, p)
		}
	}
	if len(out) == 0 {
		out = append(out, plan.Plan{DP: 1})
	}
	return out
}

// plans runs one configuration on one rank, on parallel plans, and on one
// thread.
func plans(cfg spec.Config, on []plan.Plan, o suite.Options) suite.Case {
	one := compare.Single(cfg)
	c := suite.Case{Name: cfg.Model.Name + " on plans", Clauses: []string{"C-DET-001.4"}, Runs: map[contract.Role]suite.Run{
		contract.Test: suite.Train(one, o),
		det.OneThread: {Key: suite.Train(one, o).Key + " on one thread", Alone: true, Do: onOneThread(one)},
	}}
	for _, p := range on {
		c.Runs[contract.Role(p.String())] = suite.Train(compare.On(cfg, p), o)
	}
	return c
}

// onOneThread trains cfg while the process runs Go code on one thread. The
// number of threads belongs to the process: such a run must be alone.
func onOneThread(cfg spec.Config) func(context.Context, suite.Env) (*trace.History, error) {
	return func(ctx context.Context, env suite.Env) (*trace.History, error) {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
		return env.Train(ctx, cfg)
	}
}

// goldens are the golden runs on one rank, on their own text and seed, all steps
// that are recorded unless fewer are asked for.
func goldens(o suite.Options) []suite.Case {
	variants, err := recorded(o)
	if err != nil {
		return []suite.Case{suite.Broken("golden runs", err)}
	}
	own := suite.Options{Text: data.Default()}
	var out []suite.Case
	for _, v := range variants {
		cfg := v.Config
		cfg.Text = own.Text.Name
		if o.Steps > 0 {
			cfg.Steps = min(cfg.Steps, o.Steps)
		}
		cfg.Backend = cmp.Or(o.Backend, cfg.Backend)
		out = append(out, suite.Case{
			Name: det.GoldenPrefix + v.Name, Clauses: []string{"C-DET-001.3"},
			Runs: map[contract.Role]suite.Run{contract.Test: suite.Train(cfg, own)},
		})
	}
	return out
}

// recorded lists the golden runs of a level: from 2 on also those of larger
// models, but for the largest under plain Go, which takes many minutes: from 3
// on.
func recorded(o suite.Options) ([]golden.Variant, error) {
	variants, err := golden.Variants()
	if err != nil || o.Level < 2 {
		return variants, err
	}
	large, err := golden.Large()
	for _, v := range large {
		if o.Level > 2 || o.Backend != "ref" || v.Config.Model.Params() < plainParams {
			variants = append(variants, v)
		}
	}
	return variants, err
}

// plainParams is the size of a model, in parameters, that plain Go trains in no
// more than a minute.
const plainParams = 20e6

// schedules are runs of the recorded schedules to beyond their horizons, of a
// model so small that all those steps cost nothing.
func schedules(o suite.Options) []suite.Case {
	own := suite.Options{Text: data.Default(), Backend: o.Backend}
	var out []suite.Case
	for _, v := range golden.ScheduleVariants() {
		cfg, err := suite.Preset("nano", own, v.Steps)
		if err != nil {
			return []suite.Case{suite.Broken("schedules", err)}
		}
		cfg.Model.Layers, cfg.Model.SeqLen, cfg.Sequences = 1, 2, 2
		cfg.Plan, cfg.Optimizer, cfg.Recording = plan.Plan{DP: 2}, v.Config, spec.Recording{}
		out = append(out, suite.Case{
			Name: det.SchedulePrefix + v.Name, Clauses: []string{"C-DET-001.5"},
			Runs: map[contract.Role]suite.Run{contract.Test: suite.Train(cfg, own)},
		})
	}
	return out
}
