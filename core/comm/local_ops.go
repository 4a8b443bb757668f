package comm

import (
	"bytes"
	"context"
	"slices"

	"github.com/lockstep-ml/lockstep/core/comm/internal/protocol"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
)

// AllReduce implements Communicator.
func (c *local) AllReduce(ctx context.Context, x kernels.Tensor, op kernels.Op) error {
	k := c.begin(c.place().AllReduce(x, op))
	k.dst = x
	_, err := c.meet(ctx, k, func(m *meeting) error { return c.algorithm().allReduce(ctx, c, m) })
	return err
}

// ReduceScatter implements Communicator.
func (c *local) ReduceScatter(ctx context.Context, dst, src kernels.Tensor, bounds []int, op kernels.Op) error {
	k := c.begin(c.place().ReduceScatter(dst, src, bounds, op))
	k.dst, k.src = dst, src
	_, err := c.meet(ctx, k, func(m *meeting) error { return c.algorithm().reduceScatter(ctx, c, m) })
	return err
}

// AllGather implements Communicator.
func (c *local) AllGather(ctx context.Context, dst, src kernels.Tensor, bounds []int) error {
	k := c.begin(c.place().AllGather(dst, src, bounds))
	k.dst, k.src = dst, src
	_, err := c.meet(ctx, k, func(m *meeting) error { return c.algorithm().allGather(ctx, c, m) })
	return err
}

// Broadcast implements Communicator.
func (c *local) Broadcast(ctx context.Context, x kernels.Tensor, root int) error {
	k := c.begin(c.place().Broadcast(x, root))
	k.dst = x
	_, err := c.meet(ctx, k, func(m *meeting) error { return c.algorithm().broadcast(ctx, c, m) })
	return err
}

// Send implements Communicator. It returns when the receiver has copied x.
func (c *local) Send(ctx context.Context, x kernels.Tensor, to int) error {
	k := c.begin(c.place().Message(names.OpSend, x, to))
	k.dst = x
	return c.message(ctx, k, func() error {
		p, err := c.offer(k, to, x)
		if err != nil {
			return err
		}
		return c.delivered(ctx, k, to, p)
	})
}

// Recv implements Communicator.
func (c *local) Recv(ctx context.Context, x kernels.Tensor, from int) error {
	k := c.begin(c.place().Message(names.OpRecv, x, from))
	k.dst = x
	return c.message(ctx, k, func() error {
		return c.receive(ctx, k, from, x.Len(), func(sent kernels.Tensor) { c.copy(x, sent) })
	})
}

// copy copies src to dst unless they are empty or the same memory.
func (c *local) copy(dst, src kernels.Tensor) {
	if dst.Len() == 0 || c.be.Span(dst) == c.be.Span(src) {
		return
	}
	n := dst.Len()
	c.be.Copy(dst.As(1, n), src.As(1, n))
}

// Barrier implements Communicator.
func (c *local) Barrier(ctx context.Context) error {
	_, err := c.meet(ctx, c.begin(c.place().Barrier()), nil)
	return err
}

// AllReduceInt implements Communicator.
func (c *local) AllReduceInt(ctx context.Context, x []uint64, op kernels.Op) error {
	k := c.begin(c.place().AllReduceInt(x, op))
	k.ints = x
	_, err := c.meet(ctx, k, func(m *meeting) error {
		r := c.part().Of(len(x))
		for i := r.Lo; i < r.Hi; i++ {
			v := uint64(0)
			for _, other := range m.calls {
				if op == kernels.Max {
					v = max(v, other.ints[i])
				} else {
					v += other.ints[i]
				}
			}
			for _, other := range m.calls {
				other.ints[i] = v
			}
		}
		return nil
	})
	return err
}

// AllGatherBytes implements Communicator.
func (c *local) AllGatherBytes(ctx context.Context, b []byte) ([][]byte, error) {
	all := make([][]byte, c.Size())
	k := c.begin(c.place().AllGatherBytes(b))
	k.bytes = b
	_, err := c.meet(ctx, k, func(m *meeting) error {
		for r, other := range m.calls {
			all[r] = bytes.Clone(other.bytes)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// Split implements Communicator.
func (c *local) Split(ctx context.Context, color, key int) (Communicator, error) {
	m, err := c.meet(ctx, c.begin(c.place().Split(color, key)), nil)
	if err != nil {
		return nil, err
	}
	g := m.groups[c.rank]
	if g == nil {
		return nil, nil
	}
	return &local{g: g, rank: slices.Index(g.ranks, c.me()), be: c.be}, nil
}

// split makes the groups of a split and returns each rank's.
func (g *group) split(called protocol.Roll) []*group {
	groups := make([]*group, len(called))
	for _, members := range called.Split() {
		ranks := make([]int, len(members))
		for i, r := range members {
			ranks[i] = g.ranks[r]
		}
		child := newGroup(g.w, g, ranks)
		g.children = append(g.children, child)
		for _, r := range members {
			groups[r] = child
		}
	}
	return groups
}

// Close implements Communicator. It also leaves the groups split from this one.
func (c *local) Close() error {
	g := c.g
	g.w.mu.Lock()
	defer g.w.mu.Unlock()
	if g.left[c.me()] {
		return nil
	}
	g.left[c.me()] = true
	g.leave(c.me())
	if len(g.left) == len(g.ranks) && g.parent != nil {
		g.parent.children = slices.DeleteFunc(g.parent.children, func(o *group) bool { return o == g })
	}
	return nil
}
