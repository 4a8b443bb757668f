package suite

import (
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/det"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/golden"
)

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
		cfg.Plan, cfg.Optimizer, cfg.Evidence = plan.Plan{DP: 2}, v.Config, spec.Evidence{}
		out = append(out, suite.Case{
			Name: det.SchedulePrefix + v.Name, Clauses: []string{"C-DET-001.5"},
			Runs: map[contract.Role]suite.Run{contract.Test: suite.Train(cfg, own)},
		})
	}
	return out
}
