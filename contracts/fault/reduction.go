package fault

import (
	"context"
	"sync"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/parallel"
	"github.com/lockstep-ml/lockstep/kernels"
)

// OtherGroup reduces a unit's gradient of one step over the ranks of another
// group ("tp") than the data-parallel one, on all ranks.
func OtherGroup(group names.Axis, unit string, step int) Fault {
	return func(p *launch.Parts) {
		var mu sync.Mutex
		others := map[int]comm.Communicator{} // by rank: the operation must not meet the group's own
		before := p.Comm
		p.Comm = func(rank int, g names.Axis, c comm.Communicator) comm.Communicator {
			if before != nil {
				c = before(rank, g, c)
			}
			if g != group {
				return c
			}
			// All ranks of the group are here together; without a copy the run shows
			// no fault.
			if dup, err := c.Split(context.Background(), 0, c.Rank()); err == nil {
				mu.Lock()
				others[rank] = dup
				mu.Unlock()
			}
			return c
		}
		onReduction(p, unit, step, func(rank int, c comm.Communicator, ctx context.Context, x kernels.Tensor, op kernels.Op) error {
			mu.Lock()
			other := others[rank]
			mu.Unlock()
			if other == nil {
				return c.AllReduce(ctx, x, op)
			}
			return other.AllReduce(ctx, x, op)
		})
	}
}

// late is an owner of state that hands over no gradient of a rank's last
// micro-batch before its backward pass is over.
type late struct {
	parallel.Updater
	item  *parallel.Item
	units []int // whose backward pass is done, in that order
	last  *parallel.Item
}

func (l *late) Enter(it *parallel.Item) {
	l.item = it
	l.Updater.Enter(it)
}

func (l *late) After(ctx context.Context, unit int, ph model.Phase) error {
	if ph == model.Forward || !l.item.EndsStep {
		return l.Updater.After(ctx, unit, ph)
	}
	l.units = append(l.units, unit)
	return nil
}

func (l *late) EndWorker(ctx context.Context, it *parallel.Item) error {
	if !it.EndsStep {
		return l.Updater.EndWorker(ctx, it)
	}
	l.last = it
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

// LateReductions makes every rank hold its reductions back until its backward
// pass has ended: the numbers stay right, and nothing overlaps.
func LateReductions() Fault {
	return func(p *launch.Parts) {
		before := p.Updater
		p.Updater = func(rank int, u parallel.Updater) parallel.Updater {
			if before != nil {
				u = before(rank, u)
			}
			return &late{Updater: u}
		}
	}
}
