package comm

import (
	"context"

	"github.com/lockstep-ml/lockstep/kernels"
)

// star sends everything through rank 0, which adds in rank order:
//
//	((x_0 + x_1) + x_2) + ... + x_{n-1}
//
// For every input that is the tree's order in groups of at most three; from
// four on it is not canonical. Rank 0 moves 2(n-1) buffers, the others two.
type star struct{}

func (star) allReduce(ctx context.Context, c *local, m *meeting) error {
	k := m.calls[c.rank]
	if c.rank != 0 {
		if err := c.push(ctx, k, 0, k.dst); err != nil {
			return err
		}
		return c.pull(ctx, k, 0, k.dst)
	}
	for r := 1; r < c.Size(); r++ {
		err := c.receive(ctx, k, r, k.dst.Len(), func(in kernels.Tensor) { c.reduce(k.dst, k.dst, in, k.Reduction) })
		if err != nil {
			return err
		}
	}
	return c.pushAll(ctx, k, func(int) kernels.Tensor { return k.dst })
}

// reduceScatter sums on rank 0, in dst for its own part and in src for those of
// the others.
func (star) reduceScatter(ctx context.Context, c *local, m *meeting) error {
	k := m.calls[c.rank]
	if c.rank != 0 {
		if err := c.push(ctx, k, 0, k.src); err != nil {
			return err
		}
		return c.pull(ctx, k, 0, k.dst)
	}
	cut, n := k.Bounds[1], k.src.Len()
	own, rest := k.src.Range(0, cut), k.src.Range(cut, n)
	c.copy(k.dst, own)
	for r := 1; r < c.Size(); r++ {
		err := c.receive(ctx, k, r, n, func(in kernels.Tensor) {
			c.reduce(k.dst, k.dst, in.Range(0, cut), k.Reduction)
			c.reduce(rest, rest, in.Range(cut, n), k.Reduction)
		})
		if err != nil {
			return err
		}
	}
	return c.pushAll(ctx, k, func(r int) kernels.Tensor { return chunk(k.src, k.Bounds, r) })
}

func (star) allGather(ctx context.Context, c *local, m *meeting) error {
	k := m.calls[c.rank]
	if c.rank != 0 {
		if err := c.push(ctx, k, 0, k.src); err != nil {
			return err
		}
		return c.pull(ctx, k, 0, k.dst)
	}
	c.copy(chunk(k.dst, k.Bounds, 0), k.src)
	for r := 1; r < c.Size(); r++ {
		if err := c.pull(ctx, k, r, chunk(k.dst, k.Bounds, r)); err != nil {
			return err
		}
	}
	return c.pushAll(ctx, k, func(int) kernels.Tensor { return k.dst })
}

func (star) broadcast(ctx context.Context, c *local, m *meeting) error {
	k := m.calls[c.rank]
	switch {
	case c.rank == 0 && k.Peer != 0:
		if err := c.pull(ctx, k, k.Peer, k.dst); err != nil {
			return err
		}
	case c.rank == k.Peer && c.rank != 0:
		return c.push(ctx, k, 0, k.dst)
	case c.rank != 0:
		return c.pull(ctx, k, 0, k.dst)
	}
	for r := 1; r < c.Size(); r++ {
		if r == k.Peer {
			continue
		}
		if err := c.push(ctx, k, r, k.dst); err != nil {
			return err
		}
	}
	return nil
}

// pushAll is rank 0 giving every other rank its tensor.
func (c *local) pushAll(ctx context.Context, k *call, x func(rank int) kernels.Tensor) error {
	for r := 1; r < c.Size(); r++ {
		if err := c.push(ctx, k, r, x(r)); err != nil {
			return err
		}
	}
	return nil
}
