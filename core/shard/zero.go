package shard

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// OptimizerShard is the contiguous range of the flat parameter vector whose
// optimizer state a rank holds (ZeRO, Rajbhandari et al., arXiv 1910.02054).
// Shards are disjoint, cover the vector, and their lengths are within 1 of
// Total/World; with fewer elements than ranks some are empty.
type OptimizerShard struct {
	Rank, World, Total int
	Range
}

// NewOptimizerShard applies the shard rule to a vector of total elements.
func NewOptimizerShard(rank, world, total int) (OptimizerShard, error) {
	if err := checkRank(rank, world); err != nil {
		return OptimizerShard{}, fmt.Errorf("optimizer shard: %w", err)
	}
	if total < 0 {
		return OptimizerShard{}, fmt.Errorf("optimizer shard: %d elements: must not be negative", total)
	}
	return OptimizerShard{rank, world, total, Part{rank, world}.Of(total)}, nil
}

// Bytes is the state of the shard, FullBytes of the whole vector: 4 bytes for
// each of moments values per element (AdamW has 2), and 4 for an f32 master
// copy, which weights of 16 bits need.
func (s OptimizerShard) Bytes(moments int, master bool) (uint64, error) {
	return stateBytes(s.Len(), moments, master)
}

// FullBytes is what Bytes would be without sharding.
func (s OptimizerShard) FullBytes(moments int, master bool) (uint64, error) {
	return stateBytes(s.Total, moments, master)
}

func stateBytes(elements, moments int, master bool) (uint64, error) {
	if moments < 0 {
		return 0, fmt.Errorf("%d moments per element: must not be negative", moments)
	}
	var c checked
	per := uint64(moments)
	if master {
		per++
	}
	return c.mul(uint64(elements), per, float32Bytes), c.err("optimizer state")
}

// Savings is the share of the state that this rank does not hold, by its real
// length; 0 for an empty vector.
func (s OptimizerShard) Savings() float64 {
	if s.Total == 0 {
		return 0
	}
	return float64(s.Total-s.Len()) / float64(s.Total)
}

// IdealSavings is 1-1/World, what equal shards would save.
func (s OptimizerShard) IdealSavings() float64 { return float64(s.World-1) / float64(s.World) }

// Unit is what is gathered, reduced and released together: the embedding, one
// block, final norm with head.
type Unit struct {
	Elements int
	// Tied marks a head that reads the embedding's weights: it has a gradient of
	// its own, and is gathered for its own passes, but no weights or moments.
	Tied bool
	// Copied marks a tied head on another pipeline stage than its embedding: it
	// has a copy of the weights there, but no moments.
	Copied bool
	// Held is how many of the elements each rank owns, where whole blocks or
	// tensors are given to ranks; nil is the shard rule.
	Held []int
}

// ZeRO is the arithmetic of one data-parallel step: what a rank holds, and what
// moves. Elements have 4 bytes.
type ZeRO struct {
	Stage int // 0 is plain data parallelism
	DP    int // data-parallel ranks
	// Workers is D, the logical workers of a step: DP times a power of two.
	Workers int
	// MicroBatches counts per worker.
	MicroBatches int
	Moments      int // optimizer state per element: AdamW 2, SGD with momentum 1
	Units        []Unit
}

// Validate refuses what the formulas are not made for, naming value and rule.
func (z ZeRO) Validate() error {
	switch {
	case z.Stage < 0 || z.Stage > 3:
		return fmt.Errorf("ZeRO stage %d: must be from 0 to 3", z.Stage)
	case z.DP < 1:
		return fmt.Errorf("ZeRO: dp=%d: %w", z.DP, ErrWorld)
	case z.Workers < 1 || z.Workers%z.DP != 0 || !IsPowerOfTwo(z.Workers/z.DP):
		return fmt.Errorf("ZeRO: %d logical workers: must be a power of two times dp=%d", z.Workers, z.DP)
	case z.MicroBatches < 1:
		return fmt.Errorf("ZeRO: %d micro-batches per worker: must be at least 1", z.MicroBatches)
	case z.Moments < 0:
		return fmt.Errorf("ZeRO: %d moments per element: must not be negative", z.Moments)
	}
	sum := 0
	for i, u := range z.Units {
		if u.Elements < 0 {
			return fmt.Errorf("ZeRO: unit %d has %d elements: must not be negative", i, u.Elements)
		}
		if u.Elements > math.MaxInt-sum {
			return fmt.Errorf("ZeRO: number of elements: %w", ErrOverflow)
		}
		sum += u.Elements
		if err := u.checkHeld(i, z.DP); err != nil {
			return err
		}
	}
	return nil
}

func (u *Unit) checkHeld(i, dp int) error {
	if u.Held == nil {
		return nil
	}
	if len(u.Held) != dp {
		return fmt.Errorf("ZeRO: owners of unit %d: %d ranks, dp=%d: must be equal", i, len(u.Held), dp)
	}
	sum := 0
	for _, n := range u.Held {
		if n < 0 || n > u.Elements-sum {
			return fmt.Errorf("ZeRO: unit %d: ranks own %v of %d elements: must be shares of them", i, u.Held, u.Elements)
		}
		sum += n
	}
	if sum != u.Elements {
		return fmt.Errorf("ZeRO: unit %d: ranks own %v of %d elements: must own all", i, u.Held, u.Elements)
	}
	return nil
}

// elements counts the elements that have a gradient, that have weights, and
// that have moments.
func (z ZeRO) elements() (gradients, weights, moments int) {
	for _, u := range z.Units {
		gradients += u.Elements
		if !u.Tied || u.Copied {
			weights += u.Elements
		}
		if !u.Tied {
			moments += u.Elements
		}
	}
	return gradients, weights, moments
}

// held counts the elements of a rank's shards, unit by unit.
func (z ZeRO) held(rank int) (gradients, weights, moments int) {
	shards := ZeRO{Units: slices.Clone(z.Units)}
	for i, u := range z.Units {
		shards.Units[i].Elements = Part{rank, z.DP}.Of(u.Elements).Len()
		if u.Held != nil {
			shards.Units[i].Elements = u.Held[rank]
		}
	}
	return shards.elements()
}

// mapped reports whether whole blocks or tensors are given to ranks.
func (z ZeRO) mapped() bool {
	return slices.ContainsFunc(z.Units, func(u Unit) bool { return u.Held != nil })
}

// Levels is the number of gradient buffers of the binary counter over a rank's
// D/dp workers: log2(D/dp)+1, the accumulator among them.
func (z ZeRO) Levels() int { return bits.Len(uint(z.Workers / z.DP)) }

// Memory is what one rank holds, in bytes.
type Memory struct {
	Weights uint64 // at rest
	// Gathered is the most weights that are gathered at one time: stage 3.
	Gathered uint64
	// Gradients is the buffers of the binary counter.
	Gradients uint64
	// FullGradient is where backward passes write before the reduce-scatter, in
	// stages 2 and 3; with one micro-batch per worker it lives unit by unit, and
	// this is the most at one time.
	FullGradient uint64
	Moments      uint64
	// Passing is the most of Gathered and FullGradient together at one time: a
	// pass reaches the two at different units.
	Passing uint64
}

// Total is the most that the rank holds at one time.
func (m Memory) Total() (uint64, error) {
	var c checked
	sum := uint64(0)
	for _, x := range []uint64{m.Weights, m.Gradients, m.Moments, m.Passing} {
		sum = c.add(sum, x)
	}
	return sum, c.err("memory of a rank")
}

// Memory is what rank r holds during a step, exact to the byte. With n elements
// (tied heads, which have gradients only, written n'), s(r) of them in r's
// shards of all units, S(r) in its shard of the whole vector, k moments, L
// levels, u in the largest unit, g in the units that are gathered at one time
// (the one in use and the next, with a tied head its embedding):
//
//	stage  weights  gathered  gradients     full gradient          moments
//	0      4n                 4(n+n')L                             4kn
//	1      4n                 4(n+n')L                             4kS(r)
//	2      4n                 4(s+s')(r)L   4u, or 4(n+n') if a    4ks(r)
//	3      4s(r)    4g        4(s+s')(r)L   worker has more than   4ks(r)
//	                                        one micro-batch
//
// A block map in stage 1 replaces S(r) by what it gives r. A copied head adds
// its elements to the weights. Where a tied head with the final norm is larger
// than every unit, it is u: the two are in their backward pass together. One
// rank (dp=1) is no special case.
func (z ZeRO) Memory(rank int) (Memory, error) {
	if err := z.Validate(); err != nil {
		return Memory{}, err
	}
	if err := checkRank(rank, z.DP); err != nil {
		return Memory{}, fmt.Errorf("ZeRO: %w", err)
	}
	var c checked
	bytes := func(elements, times int) uint64 { return c.mul(uint64(elements), uint64(times), float32Bytes) }
	gradients, weights, moments := z.elements()
	heldGradients, heldWeights, heldMoments := z.held(rank)
	m := Memory{
		Weights:   bytes(weights, 1),
		Gradients: bytes(gradients, z.Levels()),
		Moments:   bytes(moments, z.Moments),
	}
	switch {
	case z.Stage == 1 && z.mapped():
		m.Moments = bytes(heldMoments, z.Moments)
	case z.Stage == 1:
		m.Moments = bytes(Part{rank, z.DP}.Of(moments).Len(), z.Moments)
	case z.Stage >= 2:
		m.Gradients = bytes(heldGradients, z.Levels())
		m.Moments = bytes(heldMoments, z.Moments)
		peak := z.peak()
		m.Gathered, m.FullGradient, m.Passing = bytes(peak.gathered, 1), bytes(peak.gradients, 1), bytes(peak.both, 1)
	}
	if z.Stage == 3 {
		m.Weights = bytes(heldWeights, 1)
	}
	return m, c.err("ZeRO: memory of a rank")
}
