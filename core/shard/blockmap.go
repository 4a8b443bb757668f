package shard

import (
	"cmp"
	"fmt"
	"slices"
)

// BlockMap says which rank owns the optimizer state of each block, of the
// embedding, the final norm and the head. The owner updates what it owns and
// broadcasts it. (The other way to share out a state, by elements of the flat
// vector, is OptimizerShard; the two move different bytes, do not mix them.)
type BlockMap struct {
	Blocks                 []int // owner by block
	Embed, FinalNorm, Head int   // owners
	World                  int
}

// Sizes are the sizes of what a BlockMap shares out, all in elements or all in
// bytes. A tied head has size 0 and goes with the embedding.
type Sizes struct {
	Blocks                 []uint64
	Embed, FinalNorm, Head uint64
}

// RoundRobin gives block i to rank i mod world, all else to rank 0. There may be
// fewer blocks than ranks (see Balance.Idle).
func RoundRobin(blocks, world int) (BlockMap, error) {
	return newBlockMap(blocks, world, func(i int) int { return i % world })
}

// Contiguous gives the ranks consecutive blocks by the shard rule, all else to
// rank 0.
func Contiguous(blocks, world int) (BlockMap, error) {
	rank := 0
	return newBlockMap(blocks, world, func(i int) int {
		for !(Part{rank, world}).Of(blocks).Has(i) {
			rank++
		}
		return rank
	})
}

func newBlockMap(blocks, world int, owner func(i int) int) (BlockMap, error) {
	m := BlockMap{World: world}
	if err := m.Validate(); err != nil {
		return BlockMap{}, err
	}
	if blocks < 0 {
		return BlockMap{}, fmt.Errorf("%d blocks: must not be negative", blocks)
	}
	for i := range blocks {
		m.Blocks = append(m.Blocks, owner(i))
	}
	return m, nil
}

// Balanced gives out the largest share first, each to the rank with the least so
// far, and to the lowest of equal ranks; of equal shares the embedding comes
// first, then the head, the blocks and the final norm. So it is deterministic,
// and the largest load is less than 4/3 of the least possible (Graham, 1969).
func Balanced(s Sizes, world int) (BlockMap, error) {
	m, err := newBlockMap(len(s.Blocks), world, func(int) int { return 0 })
	if err != nil {
		return BlockMap{}, err
	}
	type share struct {
		size  uint64
		owner *int
	}
	shares := []share{{s.Embed, &m.Embed}, {s.Head, &m.Head}}
	for i, size := range s.Blocks {
		shares = append(shares, share{size, &m.Blocks[i]})
	}
	shares = append(shares, share{s.FinalNorm, &m.FinalNorm})
	slices.SortStableFunc(shares, func(a, b share) int { return cmp.Compare(b.size, a.size) })
	var c checked
	loads := make([]uint64, world)
	for _, p := range shares {
		least := 0
		for r, l := range loads {
			if l < loads[least] {
				least = r
			}
		}
		*p.owner, loads[least] = least, c.add(loads[least], p.size)
	}
	if s.Head == 0 {
		m.Head = m.Embed
	}
	return m, c.err("size-balanced block map")
}

// Validate refuses worlds below 1 and owners outside the world.
func (m BlockMap) Validate() error {
	if m.World < 1 {
		return fmt.Errorf("block map: world size %d: %w", m.World, ErrWorld)
	}
	check := func(what string, owner int) error {
		if owner < 0 || owner >= m.World {
			return fmt.Errorf("block map: owner %d of %s, world size %d: %w", owner, what, m.World, ErrOwner)
		}
		return nil
	}
	for i, o := range m.Blocks {
		if err := check(fmt.Sprintf("block %d", i), o); err != nil {
			return err
		}
	}
	if err := check("the embedding", m.Embed); err != nil {
		return err
	}
	if err := check("the final norm", m.FinalNorm); err != nil {
		return err
	}
	return check("the head", m.Head)
}

// Owner is the rank that owns a block.
func (m BlockMap) Owner(block int) (int, error) {
	if block < 0 || block >= len(m.Blocks) {
		return 0, fmt.Errorf("block %d of %d: %w", block, len(m.Blocks), ErrBlock)
	}
	return m.Blocks[block], nil
}

// BlocksOf lists the blocks that rank owns, ascending.
func (m BlockMap) BlocksOf(rank int) ([]int, error) {
	if err := checkRank(rank, m.World); err != nil {
		return nil, err
	}
	var out []int
	for i, o := range m.Blocks {
		if o == rank {
			out = append(out, i)
		}
	}
	return out, nil
}

// Loads is what each rank owns, in the unit of s.
func (m BlockMap) Loads(s Sizes) ([]uint64, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	if len(s.Blocks) != len(m.Blocks) {
		return nil, fmt.Errorf("sizes of %d blocks for a map of %d", len(s.Blocks), len(m.Blocks))
	}
	var c checked
	loads := make([]uint64, m.World)
	give := func(rank int, size uint64) { loads[rank] = c.add(loads[rank], size) }
	for i, o := range m.Blocks {
		give(o, s.Blocks[i])
	}
	give(m.Embed, s.Embed)
	give(m.FinalNorm, s.FinalNorm)
	give(m.Head, s.Head)
	return loads, c.err("block map: load of a rank")
}

// Balance is the true balance of the map, from sizes and not from counts.
func (m BlockMap) Balance(s Sizes) (Balance, error) {
	loads, err := m.Loads(s)
	if err != nil {
		return Balance{}, err
	}
	return balanceOf(loads)
}

// FractionHeld is the share of everything that rank owns.
func (m BlockMap) FractionHeld(s Sizes, rank int) (float64, error) {
	if err := checkRank(rank, m.World); err != nil {
		return 0, err
	}
	b, err := m.Balance(s)
	if err != nil {
		return 0, err
	}
	sum := uint64(0)
	for _, l := range b.Loads {
		sum += l // balanceOf has seen that it fits
	}
	return float64(b.Loads[rank]) / float64(sum), nil
}
