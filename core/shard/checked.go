package shard

import (
	"errors"
	"fmt"
	"math/bits"
)

// The errors that sizes and owners lead to; test with errors.Is. The messages
// name the value and the rule.
var (
	ErrWorld    = errors.New("world size must be at least 1")
	ErrRank     = errors.New("rank must lie in the world")
	ErrOwner    = errors.New("owner must be a rank of the world")
	ErrBlock    = errors.New("no such block")
	ErrOverflow = errors.New("does not fit in 64 bits")
	ErrEmpty    = errors.New("nothing to share out")
)

// float32Bytes is the size of an element.
const float32Bytes = 4

// checkRank refuses worlds below 1 and ranks outside them.
func checkRank(rank, world int) error {
	if world < 1 {
		return fmt.Errorf("world size %d: %w", world, ErrWorld)
	}
	if rank < 0 || rank >= world {
		return fmt.Errorf("rank %d of %d: %w", rank, world, ErrRank)
	}
	return nil
}

// checked adds and multiplies, and remembers an overflow.
type checked struct{ overflow bool }

func (c *checked) add(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	c.overflow = c.overflow || carry != 0
	return sum
}

func (c *checked) mul(xs ...uint64) uint64 {
	product := uint64(1)
	for _, x := range xs {
		hi, lo := bits.Mul64(product, x)
		c.overflow = c.overflow || hi != 0
		product = lo
	}
	return product
}

func (c *checked) err(what string) error {
	if c.overflow {
		return fmt.Errorf("%s: %w", what, ErrOverflow)
	}
	return nil
}

// Balance is how evenly a load is spread.
type Balance struct {
	Loads []uint64 // by rank or stage
	// MaxOverMean is the largest load over the mean: 1 is even, and a step that
	// waits for the slowest takes that many times the ideal.
	MaxOverMean float64
	Idle        []int // ranks or stages without load, ascending
}

// balanceOf fails with ErrEmpty if there is no load at all.
func balanceOf(loads []uint64) (Balance, error) {
	b := Balance{Loads: loads}
	var c checked
	var sum, most uint64
	for i, l := range loads {
		sum, most = c.add(sum, l), max(most, l)
		if l == 0 {
			b.Idle = append(b.Idle, i)
		}
	}
	if err := c.err("sum of loads"); err != nil {
		return Balance{}, err
	}
	if sum == 0 {
		return Balance{}, fmt.Errorf("balance of %d loads of 0: %w", len(loads), ErrEmpty)
	}
	b.MaxOverMean = float64(most) * float64(len(loads)) / float64(sum)
	return b, nil
}
