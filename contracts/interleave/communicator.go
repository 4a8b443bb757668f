package interleave

import (
	"context"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
)

// communicator is a rank's end of a group: before and after every operation
// others may go on, and the members' uses of memory are ordered by it.
type communicator struct {
	comm.Communicator
	s           *Scheduler
	group       *group
	collectives uint64
	messages    map[[2]int]uint64 // by sender and receiver
}

func (s *Scheduler) decorate(c comm.Communicator, g *group) *communicator {
	return &communicator{c, s, g, 0, map[[2]int]uint64{}}
}

// Moved implements comm.Mover.
func (c *communicator) Moved() int64 {
	if m, ok := c.Communicator.(comm.Mover); ok {
		return m.Moved()
	}
	return names.NotCounted
}

// number is the key of the next operation with a peer, -1 for a collective.
func (c *communicator) number(op string, peer int) key {
	if !isMessage(op) {
		c.collectives++
		return key{-1, -1, c.collectives}
	}
	k := [2]int{c.Rank(), peer}
	if op == names.OpRecv {
		k = [2]int{peer, c.Rank()}
	}
	c.messages[k]++
	return key{k[0], k[1], c.messages[k]}
}

// do runs an operation. A peer that is none is the operation's to refuse.
func (c *communicator) do(ctx context.Context, op string, peer int, f func(*operation) error) error {
	t := c.s.current
	if t == nil || isMessage(op) && (peer < 0 || peer >= c.Size()) {
		return f(nil)
	}
	c.s.yield()
	label := comm.LabelOf(ctx)
	if label.Tensor != "" {
		t.step = label.Step
		c.s.ranks[t.rank].step = label.Step
	}
	o := c.group.enter(c.number(op, peer), op, label, t, c.Rank())
	outer, place := t.op, t.member
	t.op, t.member = o, c.Rank()
	defer func() {
		o.leave(t, c.Rank())
		t.op, t.member = outer, place
	}()
	if err := f(o); err != nil {
		return err
	}
	c.s.yield()
	return nil
}

func (c *communicator) AllReduce(ctx context.Context, x kernels.Tensor, op kernels.Op) error {
	return c.do(ctx, names.OpAllReduce, -1, func(*operation) error { return c.Communicator.AllReduce(ctx, x, op) })
}

func (c *communicator) ReduceScatter(ctx context.Context, dst, src kernels.Tensor, bounds []int, op kernels.Op) error {
	return c.do(ctx, names.OpReduceScatter, -1, func(*operation) error { return c.Communicator.ReduceScatter(ctx, dst, src, bounds, op) })
}

func (c *communicator) AllGather(ctx context.Context, dst, src kernels.Tensor, bounds []int) error {
	return c.do(ctx, names.OpAllGather, -1, func(*operation) error { return c.Communicator.AllGather(ctx, dst, src, bounds) })
}

func (c *communicator) Broadcast(ctx context.Context, x kernels.Tensor, root int) error {
	return c.do(ctx, names.OpBroadcast, -1, func(*operation) error { return c.Communicator.Broadcast(ctx, x, root) })
}

func (c *communicator) Send(ctx context.Context, x kernels.Tensor, to int) error {
	return c.do(ctx, names.OpSend, to, func(*operation) error { return c.Communicator.Send(ctx, x, to) })
}

func (c *communicator) Recv(ctx context.Context, x kernels.Tensor, from int) error {
	return c.do(ctx, names.OpRecv, from, func(*operation) error { return c.Communicator.Recv(ctx, x, from) })
}

func (c *communicator) Barrier(ctx context.Context) error {
	return c.do(ctx, names.OpBarrier, -1, func(*operation) error { return c.Communicator.Barrier(ctx) })
}

func (c *communicator) AllReduceInt(ctx context.Context, x []uint64, op kernels.Op) error {
	return c.do(ctx, names.OpAllReduceInt, -1, func(*operation) error { return c.Communicator.AllReduceInt(ctx, x, op) })
}

func (c *communicator) AllGatherBytes(ctx context.Context, b []byte) (all [][]byte, err error) {
	err = c.do(ctx, names.OpAllGatherBytes, -1, func(*operation) (err error) {
		all, err = c.Communicator.AllGatherBytes(ctx, b)
		return err
	})
	return all, err
}

// Split also tells the members' ends of a new group that they are of one.
func (c *communicator) Split(ctx context.Context, color, k int) (sub comm.Communicator, err error) {
	err = c.do(ctx, names.OpSplit, -1, func(o *operation) (err error) {
		sub, err = c.Communicator.Split(ctx, color, k)
		if err == nil && sub != nil && o != nil {
			sub = c.s.decorate(sub, o.child(sub.Ranks()))
		}
		return err
	})
	return sub, err
}
