package fault

import (
	"slices"

	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/parallel"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// LearningRate multiplies one rank's learning rate (of all ranks, if rank is
// negative).
func LearningRate(rank int, factor float64) Fault {
	return OnConfig(func(r int, c *spec.Config) {
		if among(rank, r) {
			c.Optimizer.LR *= factor
		}
	})
}

// Schedule advances the learning-rate schedule times as fast on all ranks.
func Schedule(times int) Fault {
	return OnConfig(func(_ int, c *spec.Config) {
		c.Optimizer.Warmup /= times
		c.Optimizer.Horizon /= times
	})
}

// IdleCounter keeps the step counter at 0 on the given ranks.
func IdleCounter(ranks ...int) Fault {
	return OnCounter(func(rank, taken int) int {
		if slices.Contains(ranks, rank) {
			return 0
		}
		return taken
	})
}

// Rate gives the optimizer of every rank a learning rate by the step of the
// data, whatever its own step.
func Rate(of func(step int) float64) Fault {
	return func(p *launch.Parts) {
		var steps PerRank[int]
		decorate(&p.Updater, func(rank int, u parallel.Updater) parallel.Updater { return &begun{u, steps.At(rank)} })
		OnUpdate(func(u *Update) {
			u.Step.LR = of(*steps.At(u.Rank))
			u.Do()
		})(p)
	}
}

// begun is an updater that notes the step it is in.
type begun struct {
	parallel.Updater
	step *int
}

func (b *begun) Begin(step int) {
	*b.step = step
	b.Updater.Begin(step)
}
