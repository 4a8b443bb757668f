package comm

import (
	"context"

	"github.com/lockstep-ml/lockstep/core/names"
)

// algorithm is one rank's part of the float collectives, on the calls of a
// meeting that all ranks have come to.
type algorithm interface {
	allReduce(ctx context.Context, c *local, m *meeting) error
	reduceScatter(ctx context.Context, c *local, m *meeting) error
	allGather(ctx context.Context, c *local, m *meeting) error
	broadcast(ctx context.Context, c *local, m *meeting) error
}

// algorithmOf gives the algorithm of a checked name.
func algorithmOf(name names.Algorithm) algorithm {
	switch name {
	case names.Ring:
		return ring{}
	case names.Star:
		return star{}
	}
	return tree{}
}

// algorithm is the world's; a group of one has nothing to order.
func (c *local) algorithm() algorithm {
	if c.Size() == 1 {
		return tree{}
	}
	return c.g.w.algo
}

// tree is the canonical algorithm: rank r computes slice r of the result from
// the buffers of all ranks, read in place, by kernels.Reduce in rank order.
// Nothing is copied, and no rank writes what another one reads.
type tree struct{}

func (tree) allReduce(_ context.Context, c *local, m *meeting) error {
	k := m.calls[c.rank]
	r := c.part().Of(int(k.Count))
	if r.Empty() {
		return nil
	}
	k.parts = k.parts[:0]
	for i, other := range m.calls {
		k.parts = append(k.parts, other.dst.Range(r.Lo, r.Hi))
		k.touch(i != c.rank, 2*r.Len()) // read, and written with the result
	}
	c.be.Reduce(k.parts, k.parts, k.Reduction)
	return nil
}

func (tree) reduceScatter(_ context.Context, c *local, m *meeting) error {
	k := m.calls[c.rank]
	n := k.dst.Len()
	if n == 0 {
		return nil
	}
	k.parts = k.parts[:0]
	for i, other := range m.calls {
		k.parts = append(k.parts, other.src.Range(k.Bounds[c.rank], k.Bounds[c.rank+1]))
		k.touch(i != c.rank, n)
	}
	k.whole[0] = k.dst.As(1, n)
	c.be.Reduce(k.whole[:], k.parts, k.Reduction)
	return nil
}

func (tree) allGather(_ context.Context, c *local, m *meeting) error {
	k := m.calls[c.rank]
	for i, other := range m.calls {
		c.copy(k.dst.Range(k.Bounds[i], k.Bounds[i+1]), other.src)
		k.touch(i != c.rank, other.src.Len())
	}
	return nil
}

func (tree) broadcast(_ context.Context, c *local, m *meeting) error {
	k := m.calls[c.rank]
	if c.rank != k.Peer {
		c.copy(k.dst, m.calls[k.Peer].dst)
		k.touch(true, k.dst.Len())
	}
	return nil
}
