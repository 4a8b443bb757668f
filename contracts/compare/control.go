package compare

import (
	"fmt"

	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// captured is the largest model, in parameters, whose elements are recorded
// whenever it helps: 1M elements are 4 MiB per digest of the whole.
const captured = 1 << 20

// On is the configuration on a plan. A plan that does not promise the single
// worker's bits is recorded with its elements.
func On(cfg spec.Config, p plan.Plan) spec.Config {
	cfg.Plan = p
	cfg.Recording.Capture = !p.Exact(cfg.Model)
	return cfg
}

// Single is the configuration on one rank, the control of every plan: with its
// elements recorded where the model is small. Activations are those of a
// micro-batch, so a control that records them keeps the cut.
func Single(cfg spec.Config) spec.Config {
	workers := cfg.Plan.Workers(cfg.Model)
	single := plan.Plan{DP: 1}
	if given := cfg.Plan.MicroBatches * max(1, cfg.Plan.DP); cfg.Recording.Taps && given > workers {
		single.MicroBatches = given / workers * single.Workers(cfg.Model)
	}
	cfg.Plan = single
	cfg.Recording.Capture = cfg.Model.Params() <= captured
	return cfg
}

// Unsplit is the configuration on the plan's control, which has the whole model
// on every rank.
func Unsplit(cfg spec.Config) spec.Config {
	whole := cfg.Plan.Unsplit(cfg.Model)
	if whole.World() == 1 {
		return Single(cfg)
	}
	if cfg.Recording.Taps {
		whole.MicroBatches = cfg.Plan.MicroBatches
	}
	cfg.Plan = whole
	cfg.Recording.Capture = cfg.Model.Params() <= captured
	return cfg
}

// Sized is the configuration of a recorded run with the steps that it recorded, so
// that a control is made of no more than there is to compare with it. It refuses a
// run of which far less is recorded than its header says.
func Sized(h *trace.History, cfg spec.Config) (spec.Config, error) {
	const most = 4 // ranks, for each that left a history
	if n, there := cfg.Plan.World(), len(h.Ranks); n > most*there {
		return cfg, fmt.Errorf("%d of %d ranks left a history", there, n)
	}
	if err := evidence.Repeatable(h, cfg); err != nil {
		return cfg, err
	}
	first, _ := evidence.Resumed(h)
	cfg.Steps = max(first+1, evidence.StepsOf(h, cfg, first))
	return cfg, nil
}

// workers is the largest number of logical workers of the named configurations.
const workers = 8

// Canonical reports whether a plan promises the single worker's bits for some
// named configuration.
func Canonical(p plan.Plan) bool {
	return p.Exact(model.Config{Groups: model.Groups{Data: workers}})
}
