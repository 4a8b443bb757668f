package fault

import (
	"context"
	"slices"

	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/parallel"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Plant writes a value into one element of a gradient: the first of the down
// projection's in the first block, of one logical worker in one step, on the rank
// that computes it under the plan of c (the first slice of it). A worker that has
// no sequences, or is none, stands for the last one that has.
func Plant(c spec.Config, step, worker int, value float32) Fault {
	to := target{step, min(worker, c.Plan.Workers(c.Model)-1, c.Sequences-1), firstBlock}
	rank := 0
	for dp := range max(1, c.Plan.DP) {
		if slices.Contains(c.Plan.RankWorkers(c.Model, dp), to.worker) {
			rank = c.Plan.Dims().Rank(names.Coord{DP: dp})
		}
	}
	return func(p *launch.Parts) {
		a := &aim{target: to} // of one run, and in it of one rank's goroutine
		OnBackend(rank, func(be kernels.Backend) kernels.Backend { return &planting{be, a, value} })(p)
		aimed := false
		OnUpdater(rank, func(_ kernels.Backend, u parallel.Updater) parallel.Updater {
			if aimed {
				return u
			}
			aimed = true
			return &aiming{u, a}
		})(p)
	}
}

// firstBlock is the unit of the first block on the first stage.
const firstBlock = 1

// target is a logical worker's gradient of a unit in a step.
type target struct{ step, worker, unit int }

// aim says whether the computation is at its target.
type aim struct {
	target
	now   target
	armed bool
}

// aiming tells when a pass reaches the target.
type aiming struct {
	parallel.Updater
	*aim
}

func (a *aiming) Begin(step int) {
	a.now.step = step
	a.Updater.Begin(step)
}

func (a *aiming) Enter(it *parallel.Item) {
	a.now.worker = it.Worker
	a.Updater.Enter(it)
}

func (a *aiming) Before(ctx context.Context, unit int, ph model.Phase) error {
	a.now.unit = unit
	a.armed = ph == model.Backward && a.now == a.target
	return a.Updater.Before(ctx, unit, ph)
}

// planting is a backend that writes a value into the target.
type planting struct {
	kernels.Backend
	*aim
	value float32
}

func (p *planting) MatMulTN(c, a, b kernels.Tensor) {
	p.Backend.MatMulTN(c, a, b)
	if p.armed && c.Len() > 0 {
		p.armed = false
		p.Write(First(c), []float32{p.value})
	}
}
