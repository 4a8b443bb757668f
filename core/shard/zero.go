package shard

import "fmt"

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

// Join lays two shards of a rank side by side, as if their vectors were one:
// lengths add up, and so all sizes below do.
func (s OptimizerShard) Join(o OptimizerShard) OptimizerShard {
	s.Total, s.Hi = s.Total+o.Total, s.Hi+o.Len()
	return s
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
