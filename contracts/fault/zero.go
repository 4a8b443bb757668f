package fault

import (
	"context"
	"math"
	"slices"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/optim"
	"github.com/lockstep-ml/lockstep/core/parallel"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// partwise is a communicator with the operations replaced that give ranks parts.
type partwise struct {
	comm.Communicator
	reduceScatter func(ctx context.Context, dst, src kernels.Tensor, bounds []int, op kernels.Op) error
	allGather     func(ctx context.Context, dst, src kernels.Tensor, bounds []int) error
}

func (p *partwise) ReduceScatter(ctx context.Context, dst, src kernels.Tensor, bounds []int, op kernels.Op) error {
	if p.reduceScatter == nil {
		return p.Communicator.ReduceScatter(ctx, dst, src, bounds, op)
	}
	return p.reduceScatter(ctx, dst, src, bounds, op)
}

func (p *partwise) AllGather(ctx context.Context, dst, src kernels.Tensor, bounds []int) error {
	if p.allGather == nil {
		return p.Communicator.AllGather(ctx, dst, src, bounds)
	}
	return p.allGather(ctx, dst, src, bounds)
}

// FarScatter adds the ranks' gradients in reduce-scatters in another order: the
// tree over the ranks in bit-reversed order.
func FarScatter() Fault {
	return func(p *launch.Parts) {
		memory := watch(p)
		onComm(p, func(rank int, c comm.Communicator) comm.Communicator {
			return &partwise{Communicator: c, reduceScatter: func(ctx context.Context, dst, src kernels.Tensor, bounds []int, op kernels.Op) error {
				far, err := c.Split(ctx, 0, reversed(c.Rank(), c.Size()))
				if err != nil {
					return err
				}
				defer far.Close()
				if err := far.AllReduce(ctx, src, op); err != nil {
					return err
				}
				memory.of(rank).Copy(dst, src.Range(bounds[c.Rank()], bounds[c.Rank()+1]))
				return nil
			}}
		})
	}
}

// ReduceAgain reduces every part twice: what the first reduction gave its owner
// enters the second one.
func ReduceAgain() Fault {
	return func(p *launch.Parts) {
		onComm(p, func(_ int, c comm.Communicator) comm.Communicator {
			return &partwise{Communicator: c, reduceScatter: func(ctx context.Context, dst, src kernels.Tensor, bounds []int, op kernels.Op) error {
				own := src.Range(bounds[c.Rank()], bounds[c.Rank()+1])
				if err := c.ReduceScatter(ctx, own, src, bounds, op); err != nil {
					return err
				}
				return c.ReduceScatter(ctx, dst, src, bounds, op)
			}}
		})
	}
}

// StaleSlice gives one rank, in every gather of a unit, the slice that a peer of
// the group sent the first time.
func StaleSlice(rank, peer int, unit string) Fault {
	return func(p *launch.Parts) {
		memory := watch(p)
		var first []float32 // of one rank and unit, whose gathers follow each other
		onComm(p, func(r int, c comm.Communicator) comm.Communicator {
			if r != rank {
				return c
			}
			return &partwise{Communicator: c, allGather: func(ctx context.Context, dst, src kernels.Tensor, bounds []int) error {
				if err := c.AllGather(ctx, dst, src, bounds); err != nil || comm.LabelOf(ctx).Tensor != unit {
					return err
				}
				slice := dst.Range(bounds[peer], bounds[peer+1])
				if first != nil {
					memory.of(rank).Write(slice, first)
					return nil
				}
				first = make([]float32, slice.Len())
				return memory.of(rank).Read(first, slice)
			}}
		})
	}
}

// GatherTwice gathers a unit twice each time.
func GatherTwice(unit string) Fault {
	return func(p *launch.Parts) {
		onComm(p, func(_ int, c comm.Communicator) comm.Communicator {
			return &partwise{Communicator: c, allGather: func(ctx context.Context, dst, src kernels.Tensor, bounds []int) error {
				if err := c.AllGather(ctx, dst, src, bounds); err != nil || comm.LabelOf(ctx).Tensor != unit {
					return err
				}
				return c.AllGather(ctx, dst, src, bounds)
			}}
		})
	}
}

// LocalNorm leaves every rank with the squares of its own shard.
func LocalNorm() Fault {
	return func(p *launch.Parts) {
		before := p.Comm
		p.Comm = func(rank int, group names.Axis, c comm.Communicator) comm.Communicator {
			if before != nil {
				c = before(rank, group, c)
			}
			if group != names.World {
				return c
			}
			return &hooked{Communicator: c, allReduceInt: func(ctx context.Context, x []uint64, op kernels.Op) error {
				if comm.LabelOf(ctx).Tensor == trace.Norm {
					return nil
				}
				return c.AllReduceInt(ctx, x, op)
			}}
		}
	}
}

// onUpdate replaces the optimizer's update on one rank.
func onUpdate(p *launch.Parts, rank int, update func(inner optim.Optimizer, be kernels.Backend, w, g kernels.Tensor, moments []kernels.Tensor, decays bool, s optim.Step)) {
	onOptimizer(p, func(r int, o optim.Optimizer) optim.Optimizer {
		if r != rank {
			return o
		}
		return &updates{o, update}
	})
}

// SkipUpdate makes one rank skip the update of what it owns.
func SkipUpdate(rank int) Fault {
	return func(p *launch.Parts) {
		onUpdate(p, rank, func(optim.Optimizer, kernels.Backend, kernels.Tensor, kernels.Tensor, []kernels.Tensor, bool, optim.Step) {
		})
	}
}

// SwapMoments makes one rank take its first moments for the second ones.
func SwapMoments(rank int) Fault {
	return func(p *launch.Parts) {
		onUpdate(p, rank, func(inner optim.Optimizer, be kernels.Backend, w, g kernels.Tensor, moments []kernels.Tensor, decays bool, s optim.Step) {
			swapped := slices.Clone(moments)
			slices.Reverse(swapped)
			inner.Update(be, w, g, swapped, decays, s)
		})
	}
}

// IdleCounter keeps the step counter at 0 on the given ranks.
func IdleCounter(ranks ...int) Fault {
	return func(p *launch.Parts) {
		before := p.Counter
		p.Counter = func(rank, taken int) int {
			if before != nil {
				taken = before(rank, taken)
			}
			if slices.Contains(ranks, rank) {
				return 0
			}
			return taken
		}
	}
}

// twice announces one use of a unit twice.
type twice struct {
	parallel.Updater
	unit  int
	phase model.Phase
}

func (t *twice) Before(ctx context.Context, unit int, ph model.Phase) error {
	if err := t.Updater.Before(ctx, unit, ph); err != nil || unit != t.unit || ph != t.phase {
		return err
	}
	return t.Updater.Before(ctx, unit, ph)
}

// AnnounceTwice announces each use of a unit (its index in the layout) in a
// phase twice on one rank (on all, if rank is negative), and its end once: what
// is made for the second use is never given back.
func AnnounceTwice(rank, unit int, ph model.Phase) Fault {
	return func(p *launch.Parts) {
		before := p.Updater
		p.Updater = func(r int, u parallel.Updater) parallel.Updater {
			if before != nil {
				u = before(r, u)
			}
			if rank >= 0 && r != rank {
				return u
			}
			return &twice{u, unit, ph}
		}
	}
}

// early is a backend that gives up the weights of a product too early.
type early struct {
	kernels.Backend
	n, calls int
}

func (e *early) MatMulNT(c, a, b kernels.Tensor, groups []int) {
	e.Backend.MatMulNT(c, a, b, groups)
	if c.Len() == 0 {
		return
	}
	if e.calls == e.n {
		e.Backend.Fill(kernels.Flat(b.Buf), math.NaN())
	}
	e.calls++
}

// ReleaseEarly poisons the buffer that holds the weights of one rank's n-th
// product of a row-major matrix with a transposed one, right after it: as if
// the unit were released while its pass goes on.
func ReleaseEarly(rank, n int) Fault {
	return func(p *launch.Parts) {
		onBackend(p, func(r int, be kernels.Backend) kernels.Backend {
			if r != rank {
				return be
			}
			return &early{Backend: be, n: n}
		})
	}
}
