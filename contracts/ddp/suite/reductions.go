package suite

import (
	"context"

	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/parallel"
	"github.com/lockstep-ml/lockstep/kernels"
)

// inPairs does a call within pairs of ranks only.
func inPairs(c *fault.Call) error { return c.Within(c.Rank/2, c.Rank) }

// unbroadcast swallows every broadcast.
func unbroadcast() fault.Fault {
	return fault.OnCalls(func(c *fault.Call) bool { return c.OfReplicas() && c.Op == names.OpBroadcast }, fault.Skip)
}

// meanOfMeans gives every rank size times its own token count instead of the
// sum over ranks: each rank then weighs its own mean by 1/size.
func meanOfMeans() fault.Fault {
	return fault.OnCalls(fault.Calls(names.OpAllReduceInt, names.Tokens), func(c *fault.Call) error {
		own := c.Ints[0]
		err := c.Do()
		if err == nil && own > 0 {
			c.Ints[0] = own * uint64(c.Comm.Size())
		}
		return err
	})
}

// swap makes one rank reduce two units of equal size in the opposite order in
// one step: first is reduced before second on all other ranks.
func swap(rank int, first, second string, step int) fault.Fault {
	return func(p *launch.Parts) {
		var held *fault.Call
		fault.OnCalls(fault.Reductions(first, step), func(c *fault.Call) error {
			if c.Rank != rank {
				return c.Do()
			}
			held = c
			return nil
		})(p)
		fault.OnCalls(fault.Reductions(second, step), func(c *fault.Call) error {
			if err := c.Do(); err != nil || c.Rank != rank || held == nil {
				return err
			}
			return held.Do()
		})(p)
	}
}

// swapTensors makes one rank pack and unpack two neighbours of n elements each,
// from element first of a unit's gradient, in the opposite order, in all steps.
func swapTensors(rank int, unit string, first, n int) fault.Fault {
	return fault.OnCalls(fault.Reductions(unit, -1), func(c *fault.Call) error {
		if c.Rank != rank {
			return c.Do()
		}
		both := c.X.Range(first, first+2*n)
		if err := exchange(c.Backend, both); err != nil {
			return err
		}
		if err := c.Do(); err != nil {
			return err
		}
		return exchange(c.Backend, both)
	})
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

// lateReductions makes every rank hold its reductions back until its backward
// pass has ended: the numbers stay right, and nothing overlaps.
func lateReductions() fault.Fault {
	return fault.OnUpdater(fault.Every, func(_ kernels.Backend, u parallel.Updater) parallel.Updater { return &late{Updater: u} })
}

// late is an owner of state that hands over no gradient of a rank's last
// micro-batch before its backward pass is over.
type late struct {
	parallel.Updater
	mb    *parallel.MicroBatch
	units []int // whose backward pass is done, in that order
	last  *parallel.MicroBatch
}

func (l *late) Enter(mb *parallel.MicroBatch) {
	l.mb = mb
	l.Updater.Enter(mb)
}

func (l *late) After(ctx context.Context, unit int, ph model.Phase) error {
	if ph == model.Forward || !l.mb.EndsStep {
		return l.Updater.After(ctx, unit, ph)
	}
	l.units = append(l.units, unit)
	return nil
}

func (l *late) EndWorker(ctx context.Context, mb *parallel.MicroBatch) error {
	if !mb.EndsStep {
		return l.Updater.EndWorker(ctx, mb)
	}
	l.last = mb
	return nil
}

func (l *late) Finish(ctx context.Context) error {
	for _, u := range l.units {
		if err := l.Updater.After(ctx, u, model.Backward); err != nil {
			return err
		}
	}
	l.units = l.units[:0]
	if err := l.Updater.EndWorker(ctx, l.last); err != nil {
		return err
	}
	return l.Updater.Finish(ctx)
}
