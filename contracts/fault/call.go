package fault

import (
	"context"
	"fmt"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Call is one operation of one rank on one of its communicators, not yet done.
type Call struct {
	Comm    comm.Communicator // as it was before the fault
	Group   names.Axis        // which of the rank's communicators it is
	Rank    int
	Backend kernels.Backend // the rank's

	Op    string // one of the names.Op constants
	Label comm.Label
	// N counts the operations of this kind and tensor on the communicator, from 0;
	// of what is reduced once a step it is the step.
	N int

	X         kernels.Tensor // what is moved; of reduce-scatter and all-gather the output
	From      kernels.Tensor // the input of reduce-scatter and all-gather
	Ints      []uint64       // what is moved by all-reduce-int
	Bounds    []int
	Reduction kernels.Op
	Peer      int // the root, the receiver or the sender

	ctx context.Context // of the operation
}

// Do does the call.
func (c *Call) Do() error { return c.On(c.Comm) }

// On does the call on another communicator.
func (c *Call) On(other comm.Communicator) error {
	switch c.Op {
	case names.OpAllReduce:
		return other.AllReduce(c.ctx, c.X, c.Reduction)
	case names.OpAllReduceInt:
		return other.AllReduceInt(c.ctx, c.Ints, c.Reduction)
	case names.OpReduceScatter:
		return other.ReduceScatter(c.ctx, c.X, c.From, c.Bounds, c.Reduction)
	case names.OpAllGather:
		return other.AllGather(c.ctx, c.X, c.From, c.Bounds)
	case names.OpBroadcast:
		return other.Broadcast(c.ctx, c.X, c.Peer)
	case names.OpSend:
		return other.Send(c.ctx, c.X, c.Peer)
	case names.OpRecv:
		return other.Recv(c.ctx, c.X, c.Peer)
	}
	return fmt.Errorf("a fault on rank %d asks for %q: no operation that a Call stands for", c.Rank, c.Op)
}

// Later makes the call one that may still be done when the operation has returned,
// whose label the rank uses again.
func (c *Call) Later() { c.ctx = comm.WithLabel(c.ctx, c.Label) }

// Within does the call in a group of its own: that of the ranks with the same
// color, ordered by key.
func (c *Call) Within(color, key int) error {
	group, err := c.Comm.Split(c.ctx, color, key)
	if err != nil {
		return err
	}
	defer group.Close()
	return c.On(group)
}

// OnCalls does do in place of the operations that where selects, on every
// communicator of every rank.
func OnCalls(where func(*Call) bool, do func(*Call) error) Fault {
	return func(p *launch.Parts) {
		ranks := watch(p)
		OnComm(func(rank int, group names.Axis, c comm.Communicator) comm.Communicator {
			at := Call{Comm: c, Group: group, Rank: rank, Backend: *ranks.At(rank)}
			return &calling{c, at, map[counted]int{}, where, do}
		})(p)
	}
}

// OnGroup does the calls that where selects over the ranks of another group than
// their own, on all ranks.
func OnGroup(other names.Axis, where func(*Call) bool) Fault {
	return func(p *launch.Parts) {
		var others PerRank[comm.Communicator] // copies: a call must not meet the group's own
		OnComm(func(rank int, group names.Axis, c comm.Communicator) comm.Communicator {
			if group == other {
				// All ranks of the group are here together; without a copy the run shows
				// no fault.
				*others.At(rank), _ = c.Split(context.Background(), 0, c.Rank())
			}
			return c
		})(p)
		OnCalls(where, func(c *Call) error {
			if other := *others.At(c.Rank); other != nil {
				return c.On(other)
			}
			return c.Do()
		})(p)
	}
}

// calling is a communicator some of whose operations are replaced.
type calling struct {
	comm.Communicator
	at    Call // what all calls share
	seen  map[counted]int
	where func(*Call) bool
	do    func(*Call) error
}

// counted is what Call.N counts.
type counted struct{ op, tensor string }

// call makes the Call of an operation, which args completes, and does it.
func (c *calling) call(ctx context.Context, op string, args func(*Call)) error {
	k := c.at
	k.ctx, k.Op, k.Label = ctx, op, comm.LabelOf(ctx)
	kind := counted{op, k.Label.Tensor}
	k.N = c.seen[kind]
	c.seen[kind]++
	if args(&k); c.where(&k) {
		return c.do(&k)
	}
	return k.Do()
}

func (c *calling) AllReduce(ctx context.Context, x kernels.Tensor, op kernels.Op) error {
	return c.call(ctx, names.OpAllReduce, func(k *Call) { k.X, k.Reduction = x, op })
}

func (c *calling) AllReduceInt(ctx context.Context, x []uint64, op kernels.Op) error {
	return c.call(ctx, names.OpAllReduceInt, func(k *Call) { k.Ints, k.Reduction = x, op })
}

func (c *calling) ReduceScatter(ctx context.Context, dst, src kernels.Tensor, bounds []int, op kernels.Op) error {
	return c.call(ctx, names.OpReduceScatter, func(k *Call) { k.X, k.From, k.Bounds, k.Reduction = dst, src, bounds, op })
}

func (c *calling) AllGather(ctx context.Context, dst, src kernels.Tensor, bounds []int) error {
	return c.call(ctx, names.OpAllGather, func(k *Call) { k.X, k.From, k.Bounds = dst, src, bounds })
}

func (c *calling) Broadcast(ctx context.Context, x kernels.Tensor, root int) error {
	return c.call(ctx, names.OpBroadcast, func(k *Call) { k.X, k.Peer = x, root })
}

func (c *calling) Send(ctx context.Context, x kernels.Tensor, to int) error {
	return c.call(ctx, names.OpSend, func(k *Call) { k.X, k.Peer = x, to })
}

func (c *calling) Recv(ctx context.Context, x kernels.Tensor, from int) error {
	return c.call(ctx, names.OpRecv, func(k *Call) { k.X, k.Peer = x, from })
}
