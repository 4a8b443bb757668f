package parallel

import (
	"fmt"
	"math"

	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Counter sums equally long buffers, one per logical worker of a rank, as the
// canonical tree over consecutive workers, with a binary counter: after worker
// i, the buffer of level l holds the tree over 2^l workers where bit l of i+1
// is set. So n workers (a power of two) need log2(n)+1 buffers.
type Counter struct {
	be      kernels.Backend
	n       int // workers of this rank
	bufs    []kernels.Tensor
	present []bool // [0] of the accumulator, [1+l] of level l
}

// NewCounter allocates the buffers of length elements for n workers, a power
// of two.
func NewCounter(m *Meter, what string, length, n int) (*Counter, error) {
	if !shard.IsPowerOfTwo(n) {
		return nil, fmt.Errorf("%d logical workers on one rank: must be a power of two", n)
	}
	c := &Counter{be: m.For(what), n: n}
	for range shard.Levels(n) {
		t, err := m.Alloc(what, length)
		if err != nil {
			return nil, err
		}
		c.bufs = append(c.bufs, t)
	}
	c.present = make([]bool, len(c.bufs))
	return c, nil
}

// Acc is the accumulator: the current worker's buffer, and after the last
// worker the rank's partial sum.
func (c *Counter) Acc() kernels.Tensor { return c.bufs[0] }

// Buffers lists the accumulator and the levels.
func (c *Counter) Buffers() []kernels.Tensor { return c.bufs }

// Start clears the accumulator for a worker. One that is not present leaves no
// leaf in the tree.
func (c *Counter) Start(present bool) {
	c.be.Fill(c.bufs[0], 0)
	c.present[0] = present
}

// Fold adds what earlier workers left to elements r of the accumulator, once
// worker i's are complete: earlier + later. After the last worker an absent
// result is -0 in every element, the identity of +.
func (c *Counter) Fold(r shard.Range, i int) {
	present, acc := c.present[0], c.bufs[0].Range(r.Lo, r.Hi)
	for level := 1; i>>(level-1)&1 == 1; level++ {
		earlier := c.bufs[level].Range(r.Lo, r.Hi)
		switch {
		case !c.present[level]:
		case present:
			c.be.Add(acc, earlier, acc)
		default:
			c.be.Copy(acc, earlier)
			present = true
		}
	}
	if i == c.n-1 && !present {
		c.be.Fill(acc, math.Copysign(0, -1))
	}
}

// End closes worker i after all elements are folded: the accumulator becomes
// the level that waits for the next worker, or stays where it was the last.
func (c *Counter) End(i int) {
	level := 1
	for ; i>>(level-1)&1 == 1; level++ {
		c.present[0] = c.present[0] || c.present[level]
	}
	if i == c.n-1 {
		return
	}
	c.bufs[0], c.bufs[level] = c.bufs[level], c.bufs[0]
	c.present[0], c.present[level] = c.present[level], c.present[0]
}
