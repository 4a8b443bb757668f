package comm

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
)

// AllReduce implements Communicator.
func (c *local) AllReduce(ctx context.Context, x kernels.Tensor, op kernels.Op) error {
	k := c.begin(names.OpAllReduce)
	k.count, k.reduction, k.dst = int64(x.Len()), op, x
	k.requireTensor("x", x)
	k.requireReduction()
	_, err := c.meet(ctx, k, func(m *meeting) error { return c.algorithm().allReduce(ctx, c, m) })
	return err
}

// ReduceScatter implements Communicator.
func (c *local) ReduceScatter(ctx context.Context, dst, src kernels.Tensor, bounds []int, op kernels.Op) error {
	k := c.begin(names.OpReduceScatter)
	k.count, k.bounds, k.reduction, k.dst, k.src = int64(src.Len()), bounds, op, dst, src
	k.requireReduction()
	c.requireParts(k, "src", src, "dst", dst)
	_, err := c.meet(ctx, k, func(m *meeting) error { return c.algorithm().reduceScatter(ctx, c, m) })
	return err
}

// AllGather implements Communicator.
func (c *local) AllGather(ctx context.Context, dst, src kernels.Tensor, bounds []int) error {
	k := c.begin(names.OpAllGather)
	k.count, k.bounds, k.dst, k.src = int64(dst.Len()), bounds, dst, src
	c.requireParts(k, "dst", dst, "src", src)
	_, err := c.meet(ctx, k, func(m *meeting) error { return c.algorithm().allGather(ctx, c, m) })
	return err
}

// requireParts checks a whole vector, its bounds, and this rank's part of it,
// which lies in its place in the whole or elsewhere.
func (c *local) requireParts(k *call, wholeName string, whole kernels.Tensor, partName string, part kernels.Tensor) {
	k.requireTensor(wholeName, whole)
	k.requireTensor(partName, part)
	k.requireBounds(c.Size())
	if k.invalid != nil {
		return
	}
	lo, hi := k.bounds[c.rank], k.bounds[c.rank+1]
	if part.Len() != hi-lo {
		k.refuse("%s has %d elements, rank %d's part of %s is [%d,%d)", partName, part.Len(), c.me(), wholeName, lo, hi)
		return
	}
	if part.Len() == 0 {
		return
	}
	own, is := c.be.Span(whole.Range(lo, hi)), c.be.Span(part)
	if own != is && c.be.Span(whole).Overlaps(is) {
		k.refuse("%s overlaps %s but is not rank %d's part of it", partName, wholeName, c.me())
	}
}

// Broadcast implements Communicator.
func (c *local) Broadcast(ctx context.Context, x kernels.Tensor, root int) error {
	k := c.begin(names.OpBroadcast)
	k.count, k.peer, k.dst = int64(x.Len()), root, x
	k.requireTensor("x", x)
	if root < 0 || root >= c.Size() {
		k.refuse("root %d: must lie in [0,%d)", root, c.Size())
	}
	_, err := c.meet(ctx, k, func(m *meeting) error { return c.algorithm().broadcast(ctx, c, m) })
	return err
}

// Send implements Communicator. It returns when the receiver has copied x.
func (c *local) Send(ctx context.Context, x kernels.Tensor, to int) error {
	k := c.messageCall(names.OpSend, x, to)
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
	k := c.messageCall(names.OpRecv, x, from)
	return c.message(ctx, k, func() error {
		return c.receive(ctx, k, from, x.Len(), func(sent kernels.Tensor) { c.copy(x, sent) })
	})
}

// messageCall is the call of one side of a message.
func (c *local) messageCall(op string, x kernels.Tensor, peer int) *call {
	k := c.begin(op)
	k.count, k.peer, k.dst = int64(x.Len()), peer, x
	k.requireTensor("x", x)
	switch {
	case peer < 0 || peer >= c.Size():
		k.refuse("rank %d: must lie in [0,%d)", peer, c.Size())
	case peer == c.rank:
		k.refuse("rank %d is this rank itself", peer)
	}
	return k
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
	_, err := c.meet(ctx, c.begin(names.OpBarrier), nil)
	return err
}

// AllReduceInt implements Communicator.
func (c *local) AllReduceInt(ctx context.Context, x []uint64, op kernels.Op) error {
	k := c.begin(names.OpAllReduceInt)
	k.count, k.reduction, k.ints = int64(len(x)), op, x
	k.requireReduction()
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
	k := c.begin(names.OpAllGatherBytes)
	k.count, k.bytes = int64(len(b)), b
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
	k := c.begin(names.OpSplit)
	k.color, k.key = color, key
	m, err := c.meet(ctx, k, nil)
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
func (g *group) split(calls []*call) []*group {
	order := make([]int, len(calls))
	for r := range order {
		order[r] = r
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(calls[a].color, calls[b].color), cmp.Compare(calls[a].key, calls[b].key), cmp.Compare(a, b))
	})
	groups := make([]*group, len(calls))
	for i := 0; i < len(order); {
		color, members := calls[order[i]].color, []int(nil)
		first := i
		for ; i < len(order) && calls[order[i]].color == color; i++ {
			members = append(members, g.ranks[order[i]])
		}
		if color < 0 {
			continue
		}
		child := newGroup(g.w, g, members)
		g.children = append(g.children, child)
		for _, r := range order[first:i] {
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
