package fault

import (
	"context"
	"slices"
	"sync"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/optim"
	"github.com/lockstep-ml/lockstep/core/parallel"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// onUpdater decorates the owner of each of every rank's model parts.
func onUpdater(p *launch.Parts, decorate func(rank int, u parallel.Updater) parallel.Updater) {
	before := p.Updater
	p.Updater = func(rank int, u parallel.Updater) parallel.Updater {
		if before != nil {
			u = before(rank, u)
		}
		return decorate(rank, u)
	}
}

// Plant writes a value into one element of a gradient: the first of the down
// projection's in the first block, of one logical worker in one step, on the rank
// that computes it under the plan of c (the first slice of it). A worker that has
// no sequences, or is none, stands for the last one that has.
func Plant(c spec.Config, step, worker int, value float32) Fault {
	a := aim{target: target{step, min(worker, c.Plan.Workers(c.Model)-1, c.Sequences-1), firstBlock}}
	at := 0
	for dp := range max(1, c.Plan.DP) {
		if slices.Contains(c.Plan.RankWorkers(c.Model, dp), a.worker) {
			at = c.Plan.Dims().Rank(names.Coord{DP: dp})
		}
	}
	return func(p *launch.Parts) {
		a := a // of one run, and in it of one rank's goroutine
		onBackend(p, func(rank int, be kernels.Backend) kernels.Backend {
			if rank != at {
				return be
			}
			return &planting{be, &a, value}
		})
		aimed := false
		onUpdater(p, func(rank int, u parallel.Updater) parallel.Updater {
			if rank != at || aimed {
				return u
			}
			aimed = true
			return &aiming{Updater: u, aim: &a}
		})
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
		p.Write(kernels.Tensor{Buf: c.Buf, Off: c.Off, Rows: 1, Cols: 1, Stride: 1}, []float32{p.value})
	}
}

// onNorm follows the sum of squares over all ranks: change gets what a rank
// holds of it, before or after the sum.
func onNorm(p *launch.Parts, before, after func(rank int, c comm.Communicator, ctx context.Context, x []uint64) error) {
	onGroup(p, names.World, func(rank int, c comm.Communicator) comm.Communicator {
		return &hooked{Communicator: c, allReduceInt: func(ctx context.Context, x []uint64, op kernels.Op) error {
			norm := comm.LabelOf(ctx).Tensor == trace.Norm
			if norm && before != nil {
				if err := before(rank, c, ctx, x); err != nil {
					return err
				}
			}
			if err := c.AllReduceInt(ctx, x, op); err != nil || !norm || after == nil {
				return err
			}
			return after(rank, c, ctx, x)
		}}
	})
}

// NormOfFirst makes the norm one of the first rank's squares alone, on all ranks.
func NormOfFirst() Fault {
	return func(p *launch.Parts) {
		onNorm(p, func(rank int, _ comm.Communicator, _ context.Context, x []uint64) error {
			if rank > 0 {
				clear(x)
			}
			return nil
		}, nil)
	}
}

// NormTwice sums the squares over all ranks once more, although they are the
// sum already.
func NormTwice() Fault {
	return func(p *launch.Parts) {
		onNorm(p, nil, func(_ int, c comm.Communicator, ctx context.Context, x []uint64) error {
			return c.AllReduceInt(ctx, x, kernels.Sum)
		})
	}
}

// StepAnyway makes one rank take a norm that is not finite for 0, so that it
// steps where the others do not.
func StepAnyway(rank int) Fault {
	return func(p *launch.Parts) {
		onNorm(p, nil, func(r int, _ comm.Communicator, _ context.Context, x []uint64) error {
			if sum := (kernels.SquareSum)(x); r == rank && sum[kernels.SquareInf]+sum[kernels.SquareNaN] > 0 {
				clear(x)
			}
			return nil
		})
	}
}

// perRank holds one value for every rank; ranks are goroutines.
type perRank[T any] struct {
	mu sync.Mutex
	of map[int]*T
}

// at is the value of a rank, which is its own to change.
func (p *perRank[T]) at(rank int) *T {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = map[int]*T{}
	}
	if p.of[rank] == nil {
		p.of[rank] = new(T)
	}
	return p.of[rank]
}

// CountSkipped makes all ranks count a skipped step as an optimizer step.
func CountSkipped() Fault {
	return func(p *launch.Parts) {
		var steps perRank[int]
		p.Counter = func(rank, _ int) int {
			n := steps.at(rank)
			*n++
			return *n
		}
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

// onStep changes what every rank's optimizer is told, given the step of the data.
func onStep(p *launch.Parts, change func(step int, s *optim.Step)) {
	var steps perRank[int]
	onUpdater(p, func(rank int, u parallel.Updater) parallel.Updater { return &begun{u, steps.at(rank)} })
	onOptimizer(p, func(rank int, o optim.Optimizer) optim.Optimizer {
		return &updates{o, func(inner optim.Optimizer, be kernels.Backend, w, g kernels.Tensor, moments []kernels.Tensor, decays bool, s optim.Step) {
			change(*steps.at(rank), &s)
			inner.Update(be, w, g, moments, decays, s)
		}}
	})
}

// Rate gives the optimizer of every rank a learning rate by the step of the
// data, whatever its own step.
func Rate(of func(step int) float64) Fault {
	return func(p *launch.Parts) {
		onStep(p, func(step int, s *optim.Step) { s.LR = of(step) })
	}
}

// biasless is a backend that adds up no columns, but for the single one of losses.
type biasless struct{ kernels.Backend }

func (b *biasless) ColumnSum(dst, x kernels.Tensor) {
	if x.Cols == 1 {
		b.Backend.ColumnSum(dst, x)
	}
}

// LoseBiasGrads leaves the gradients of all biases 0.
func LoseBiasGrads() Fault {
	return func(p *launch.Parts) {
		onBackend(p, func(_ int, be kernels.Backend) kernels.Backend { return &biasless{be} })
	}
}
