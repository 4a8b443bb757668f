package comm

import (
	"context"

	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/kernels"
)

// ring passes chunks to the next rank while it receives from the previous one.
// Chunks are cut by the shard rule (or the caller's bounds), and rank r ends up
// with chunk r. The sum of chunk c is the left fold
//
//	((x_{c+1} + x_{c+2}) + ...) + x_c
//
// over ranks modulo n, so it is not canonical: it has the tree's bits for every
// input only in groups of at most two.
type ring struct{}

func (ring) allReduce(ctx context.Context, c *local, m *meeting) error {
	k := m.calls[c.rank]
	x := k.dst
	bounds := shard.Bounds(x.Len(), c.Size())
	if err := c.ringReduceScatter(ctx, k, chunk(x, bounds, c.rank), x, bounds); err != nil {
		return err
	}
	return c.ringAllGather(ctx, k, x, bounds)
}

func (ring) reduceScatter(ctx context.Context, c *local, m *meeting) error {
	k := m.calls[c.rank]
	return c.ringReduceScatter(ctx, k, k.dst, k.src, k.Bounds)
}

func (ring) allGather(ctx context.Context, c *local, m *meeting) error {
	k := m.calls[c.rank]
	c.copy(chunk(k.dst, k.Bounds, c.rank), k.src)
	// The next rank may read it as soon as it is offered.
	if err := c.be.Sync(); err != nil {
		return err
	}
	return c.ringAllGather(ctx, k, k.dst, k.Bounds)
}

// broadcast passes the buffer on from rank to rank.
func (ring) broadcast(ctx context.Context, c *local, m *meeting) error {
	k := m.calls[c.rank]
	n := c.Size()
	next, previous := (c.rank+1)%n, (c.rank+n-1)%n
	if c.rank != k.Peer {
		if err := c.pull(ctx, k, previous, k.dst); err != nil {
			return err
		}
	}
	if next == k.Peer {
		return nil
	}
	return c.push(ctx, k, next, k.dst)
}

// chunk is the i-th part of x.
func chunk(x kernels.Tensor, bounds []int, i int) kernels.Tensor {
	return x.Range(bounds[i], bounds[i+1])
}

// ringReduceScatter leaves the reduction of chunk r in dst of rank r. In step s
// rank r passes on chunk r-s-1 and adds its own elements to chunk r-s-2, which
// is chunk r in the last of the n-1 steps.
func (c *local) ringReduceScatter(ctx context.Context, k *call, dst, src kernels.Tensor, bounds []int) error {
	n := c.Size()
	for s := range n - 1 {
		out := chunk(src, bounds, (c.rank+2*n-s-1)%n)
		own := chunk(src, bounds, (c.rank+2*n-s-2)%n)
		into := own
		if s == n-2 {
			into = dst
		}
		err := c.exchange(ctx, k, out, own.Len(), func(in kernels.Tensor) { c.reduce(into, in, own, k.Reduction) })
		if err != nil {
			return err
		}
	}
	return nil
}

// ringAllGather fills x, of which rank r holds chunk r.
func (c *local) ringAllGather(ctx context.Context, k *call, x kernels.Tensor, bounds []int) error {
	n := c.Size()
	for s := range n - 1 {
		out := chunk(x, bounds, (c.rank+n-s)%n)
		into := chunk(x, bounds, (c.rank+2*n-s-1)%n)
		err := c.exchange(ctx, k, out, into.Len(), func(in kernels.Tensor) { c.copy(into, in) })
		if err != nil {
			return err
		}
	}
	return nil
}

// exchange sends out to the next rank and at the same time takes count elements
// from the previous one: were it one after the other, all would wait for all.
func (c *local) exchange(ctx context.Context, k *call, out kernels.Tensor, count int, take func(kernels.Tensor)) error {
	n := c.Size()
	next, previous := (c.rank+1)%n, (c.rank+n-1)%n
	p, err := c.offer(k, next, out)
	if err != nil {
		return err
	}
	err = c.receive(ctx, k, previous, count, take)
	if sent := c.delivered(ctx, k, next, p); err == nil {
		err = sent
	}
	return err
}

// reduce is dst = a + b, or the maximum.
func (c *local) reduce(dst, a, b kernels.Tensor, op kernels.Op) {
	if n := dst.Len(); n > 0 {
		c.be.Reduce([]kernels.Tensor{dst.As(1, n)}, []kernels.Tensor{a.As(1, n), b.As(1, n)}, op)
	}
}

// push sends x to a rank and waits until it has it.
func (c *local) push(ctx context.Context, k *call, to int, x kernels.Tensor) error {
	p, err := c.offer(k, to, x)
	if err != nil {
		return err
	}
	return c.delivered(ctx, k, to, p)
}

// pull fills x with what a rank sends.
func (c *local) pull(ctx context.Context, k *call, from int, x kernels.Tensor) error {
	return c.receive(ctx, k, from, x.Len(), func(sent kernels.Tensor) { c.copy(x, sent) })
}
