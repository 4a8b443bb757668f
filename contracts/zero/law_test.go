package zero

import (
	"testing"

	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/shard"
)

// The laws tell good maps from bad ones without the functions that make maps.
func TestLaw(t *testing.T) {
	sizes := shard.Sizes{Blocks: []uint64{10, 10, 10, 10, 10}, Embed: 7, FinalNorm: 1, Head: 7}
	tied := shard.Sizes{Blocks: []uint64{10, 10, 10, 10, 10}, Embed: 7, FinalNorm: 1}
	for _, x := range []struct {
		name, kind string
		sizes      shard.Sizes
		m          shard.BlockMap
		ok         bool
	}{
		{"round-robin", plan.ShardRoundRobin, sizes, shard.BlockMap{World: 3, Blocks: []int{0, 1, 2, 0, 1}}, true},
		{"round-robin on fewer", plan.ShardRoundRobin, sizes, shard.BlockMap{World: 3, Blocks: []int{0, 1, 0, 1, 0}}, false},
		{"round-robin backwards", plan.ShardRoundRobin, sizes, shard.BlockMap{World: 3, Blocks: []int{2, 1, 0, 2, 1}}, false},
		{"round-robin, head elsewhere", plan.ShardRoundRobin, sizes, shard.BlockMap{World: 3, Blocks: []int{0, 1, 2, 0, 1}, Head: 2}, false},
		{"contiguous", plan.ShardContiguous, sizes, shard.BlockMap{World: 3, Blocks: []int{0, 0, 1, 1, 2}}, true},
		{"contiguous, remainder last", plan.ShardContiguous, sizes, shard.BlockMap{World: 3, Blocks: []int{0, 1, 1, 2, 2}}, false},
		{"contiguous, one takes three", plan.ShardContiguous, sizes, shard.BlockMap{World: 3, Blocks: []int{0, 0, 0, 1, 2}}, false},
		{"not contiguous", plan.ShardContiguous, sizes, shard.BlockMap{World: 3, Blocks: []int{0, 0, 1, 2, 1}}, false},
		{"contiguous, more ranks than blocks", plan.ShardContiguous, sizes, shard.BlockMap{World: 7, Blocks: []int{0, 1, 2, 3, 4}}, true},
		{"balanced", plan.ShardBalanced, sizes, shard.BlockMap{World: 3, Blocks: []int{0, 1, 2, 0, 1}, Embed: 2, Head: 2, FinalNorm: 2}, true},
		{"balanced, all on rank 0", plan.ShardBalanced, sizes, shard.BlockMap{World: 3, Blocks: make([]int, 5)}, false},
		{"balanced, one rank idle", plan.ShardBalanced, sizes, shard.BlockMap{World: 3, Blocks: []int{0, 1, 0, 1, 0}, Embed: 1, Head: 1}, false},
		{"balanced, tied", plan.ShardBalanced, tied, shard.BlockMap{World: 2, Blocks: []int{0, 1, 0, 1, 0}, Embed: 1, Head: 1}, true},
		{"balanced, tied, all on rank 1", plan.ShardBalanced, tied, shard.BlockMap{World: 2, Blocks: []int{1, 1, 1, 1, 1}, Embed: 1, Head: 1}, false},
		{"balanced, more ranks than parts", plan.ShardBalanced, tied, shard.BlockMap{World: 8, Blocks: []int{0, 1, 2, 3, 4}, Embed: 5, Head: 5, FinalNorm: 6}, true},
		{"balanced, more ranks than parts, two together", plan.ShardBalanced, tied, shard.BlockMap{World: 8, Blocks: []int{0, 0, 2, 3, 4}, Embed: 5, Head: 5, FinalNorm: 6}, false},
	} {
		if err := law(x.kind, x.sizes, x.m); (err == nil) != x.ok {
			t.Errorf("%s: %v", x.name, err)
		}
	}
}
