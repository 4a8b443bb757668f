package fault

import (
	"context"
	"math"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
)

// hooked is a communicator with some operations replaced.
type hooked struct {
	comm.Communicator
	allReduce    func(ctx context.Context, x kernels.Tensor, op kernels.Op) error
	allReduceInt func(ctx context.Context, x []uint64, op kernels.Op) error
	broadcast    func(ctx context.Context, x kernels.Tensor, root int) error
}

func (h *hooked) AllReduce(ctx context.Context, x kernels.Tensor, op kernels.Op) error {
	if h.allReduce == nil {
		return h.Communicator.AllReduce(ctx, x, op)
	}
	return h.allReduce(ctx, x, op)
}

func (h *hooked) AllReduceInt(ctx context.Context, x []uint64, op kernels.Op) error {
	if h.allReduceInt == nil {
		return h.Communicator.AllReduceInt(ctx, x, op)
	}
	return h.allReduceInt(ctx, x, op)
}

func (h *hooked) Broadcast(ctx context.Context, x kernels.Tensor, root int) error {
	if h.broadcast == nil {
		return h.Communicator.Broadcast(ctx, x, root)
	}
	return h.broadcast(ctx, x, root)
}

// occurrences counts how often each unit was reduced through one communicator,
// which is the step of the reduction.
type occurrences map[string]int

func (o occurrences) step(ctx context.Context) (unit string, step int) {
	unit = comm.LabelOf(ctx).Tensor
	step = o[unit]
	o[unit]++
	return unit, step
}

// onReduction replaces the reduction of one unit in one step (in every step, if
// step is negative) on all ranks.
func onReduction(p *launch.Parts, unit string, step int, f func(rank int, c comm.Communicator, ctx context.Context, x kernels.Tensor, op kernels.Op) error) {
	onComm(p, func(rank int, c comm.Communicator) comm.Communicator {
		seen := occurrences{}
		return &hooked{Communicator: c, allReduce: func(ctx context.Context, x kernels.Tensor, op kernels.Op) error {
			if u, s := seen.step(ctx); u == unit && (step < 0 || s == step) {
				return f(rank, c, ctx, x, op)
			}
			return c.AllReduce(ctx, x, op)
		}}
	})
}

// SkipReduction leaves a unit's gradient of one step local on all ranks.
func SkipReduction(unit string, step int) Fault {
	return func(p *launch.Parts) {
		onReduction(p, unit, step, func(int, comm.Communicator, context.Context, kernels.Tensor, kernels.Op) error { return nil })
	}
}

// ReduceTwice reduces a unit's gradient of one step twice on all ranks.
func ReduceTwice(unit string, step int) Fault {
	return func(p *launch.Parts) {
		onReduction(p, unit, step, func(_ int, c comm.Communicator, ctx context.Context, x kernels.Tensor, op kernels.Op) error {
			if err := c.AllReduce(ctx, x, op); err != nil {
				return err
			}
			return c.AllReduce(ctx, x, op)
		})
	}
}

// SubGroup reduces a unit's gradient of one step within pairs of ranks only.
func SubGroup(unit string, step int) Fault {
	return func(p *launch.Parts) {
		onReduction(p, unit, step, func(rank int, c comm.Communicator, ctx context.Context, x kernels.Tensor, op kernels.Op) error {
			pair, err := c.Split(ctx, rank/2, rank)
			if err != nil {
				return err
			}
			defer pair.Close()
			return pair.AllReduce(ctx, x, op)
		})
	}
}

// OtherTree adds the ranks' gradients of a unit in another order: the tree over
// the ranks in bit-reversed order, as halving from the far distance does.
func OtherTree(unit string) Fault {
	return func(p *launch.Parts) {
		onReduction(p, unit, -1, func(_ int, c comm.Communicator, ctx context.Context, x kernels.Tensor, op kernels.Op) error {
			far, err := c.Split(ctx, 0, reversed(c.Rank(), c.Size()))
			if err != nil {
				return err
			}
			defer far.Close()
			return far.AllReduce(ctx, x, op)
		})
	}
}

// reversed reverses the bits of i, an index below the power of two n.
func reversed(i, n int) int {
	out := 0
	for ; n > 1; n /= 2 {
		out, i = out<<1|i&1, i/2
	}
	return out
}

// Unbroadcast swallows every broadcast.
func Unbroadcast() Fault {
	return func(p *launch.Parts) {
		onComm(p, func(_ int, c comm.Communicator) comm.Communicator {
			return &hooked{Communicator: c, broadcast: func(context.Context, kernels.Tensor, int) error { return nil }}
		})
	}
}

// MeanOfMeans gives every rank size times its own token count instead of the
// sum over ranks: each rank then weighs its own mean by 1/size.
func MeanOfMeans() Fault {
	return func(p *launch.Parts) {
		onComm(p, func(_ int, c comm.Communicator) comm.Communicator {
			return &hooked{Communicator: c, allReduceInt: func(ctx context.Context, x []uint64, op kernels.Op) error {
				if comm.LabelOf(ctx).Tensor != names.Tokens {
					return c.AllReduceInt(ctx, x, op)
				}
				own := x[0]
				if err := c.AllReduceInt(ctx, x, op); err != nil {
					return err
				}
				if own > 0 {
					x[0] = own * uint64(c.Size())
				}
				return nil
			}}
		})
	}
}

// Swap makes one rank reduce two units of equal size in the opposite order in
// one step: first is reduced before second on all other ranks.
func Swap(rank int, first, second string, step int) Fault {
	return func(p *launch.Parts) {
		onComm(p, func(r int, c comm.Communicator) comm.Communicator {
			if r != rank {
				return c
			}
			seen := occurrences{}
			var held func() error
			return &hooked{Communicator: c, allReduce: func(ctx context.Context, x kernels.Tensor, op kernels.Op) error {
				unit, s := seen.step(ctx)
				switch {
				case s == step && unit == first:
					held = func() error { return c.AllReduce(ctx, x, op) }
					return nil
				case s == step && unit == second && held != nil:
					if err := c.AllReduce(ctx, x, op); err != nil {
						return err
					}
					return held()
				}
				return c.AllReduce(ctx, x, op)
			}}
		})
	}
}

// FlipBit delivers the reduced gradient of a unit, in one step, to one rank (to
// all, if rank is negative) with one bit of one element flipped.
func FlipBit(rank int, unit string, step, element int, bit uint) Fault {
	return func(p *launch.Parts) {
		memory := watch(p)
		onReduction(p, unit, step, func(r int, c comm.Communicator, ctx context.Context, x kernels.Tensor, op kernels.Op) error {
			if err := c.AllReduce(ctx, x, op); err != nil || (rank >= 0 && r != rank) {
				return err
			}
			return flip(memory.of(r), x.Range(element, element+1), bit)
		})
	}
}

// flip inverts one bit of the single element of x.
func flip(be kernels.Backend, x kernels.Tensor, bit uint) error {
	v := make([]float32, 1)
	if err := be.Read(v, x); err != nil {
		return err
	}
	v[0] = math.Float32frombits(math.Float32bits(v[0]) ^ 1<<bit)
	be.Write(x, v)
	return nil
}

// SwapTensors makes one rank pack and unpack two neighbours of n elements each,
// from element first of a unit's gradient, in the opposite order, in all steps.
func SwapTensors(rank int, unit string, first, n int) Fault {
	return func(p *launch.Parts) {
		memory := watch(p)
		onReduction(p, unit, -1, func(r int, c comm.Communicator, ctx context.Context, x kernels.Tensor, op kernels.Op) error {
			if r != rank {
				return c.AllReduce(ctx, x, op)
			}
			be, both := memory.of(r), x.Range(first, first+2*n)
			if err := exchange(be, both); err != nil {
				return err
			}
			if err := c.AllReduce(ctx, x, op); err != nil {
				return err
			}
			return exchange(be, both)
		})
	}
}

// exchange swaps the two halves of x.
func exchange(be kernels.Backend, x kernels.Tensor) error {
	v := make([]float32, x.Len())
	if err := be.Read(v, x); err != nil {
		return err
	}
	half := len(v) / 2
	be.Write(x.Range(0, half), v[half:])
	be.Write(x.Range(half, 2*half), v[:half])
	return nil
}
