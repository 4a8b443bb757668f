package det

import (
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/golden"
)

// SchedulePrefix begins the names of the cases that run a recorded schedule.
const SchedulePrefix = "schedule "

// scheduled is clause 5: every rank has the recorded learning rate in every step.
func scheduled(p *contract.Pass, r *evidence.Run) {
	name, ok := strings.CutPrefix(p.Case, SchedulePrefix)
	if !ok {
		p.Doubt("case %q runs no recorded schedule", p.Case)
		return
	}
	s, err := golden.LoadSchedule(name)
	if err != nil {
		p.Doubt("%v", err)
		return
	}
	if !follows(r, name) || r.Config.Steps != len(s.Rates) {
		p.Doubt("the run has another schedule than %s, or not its %d steps", name, len(s.Rates))
		return
	}
	for step, want := range s.Rates {
		for rank := range r.Header.World {
			e, ok := r.Scalar(rank, step, trace.LR)
			contract.Compare(p.At(rank, step), ok, float64(e.Value), want,
				"the learning rate of rank %d is not the recorded one of schedule %s", rank, name)
		}
	}
}

// follows reports whether a run was asked to follow a recorded schedule.
func follows(r *evidence.Run, name string) bool {
	for _, v := range golden.ScheduleVariants() {
		a, b := v.Config, r.Config.Optimizer
		if v.Name == name {
			return a.LR == b.LR && a.Warmup == b.Warmup && a.Horizon == b.Horizon && a.MinLR == b.MinLR
		}
	}
	return false
}
