package zero

import (
	"fmt"
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/contracts/sharding"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/shard"
)

// law says what is wrong with a map of a kind, whoever made it; a plan that
// deals out tensors has no map.
func law(kind string, s shard.Sizes, m shard.BlockMap) error {
	switch kind {
	case plan.ShardRoundRobin:
		for i, owner := range m.Blocks {
			if owner != i%m.World {
				return fmt.Errorf("block %d is rank %d's, round-robin gives it to rank %d", i, owner, i%m.World)
			}
		}
		return onFirst(m)
	case plan.ShardContiguous:
		if err := ascending(m); err != nil {
			return err
		}
		return onFirst(m)
	case plan.ShardBalanced:
		return balanced(s, m)
	}
	return nil
}

// onFirst checks that all but the blocks is rank 0's.
func onFirst(m shard.BlockMap) error {
	if m.Embed != 0 || m.FinalNorm != 0 || m.Head != 0 {
		return fmt.Errorf("embedding, final norm and head are with ranks %d, %d and %d: all belong to rank 0", m.Embed, m.FinalNorm, m.Head)
	}
	return nil
}

// ascending checks that owners ascend and that their numbers of blocks differ by
// one at most, the larger ones first.
func ascending(m shard.BlockMap) error {
	counts := make([]int, m.World)
	for i, owner := range m.Blocks {
		if i > 0 && owner < m.Blocks[i-1] {
			return fmt.Errorf("block %d is rank %d's, the block before it rank %d's: owners must ascend", i, owner, m.Blocks[i-1])
		}
		counts[owner]++
	}
	for rank, n := range counts {
		want := len(m.Blocks) / m.World
		if rank < len(m.Blocks)%m.World {
			want++
		}
		if n != want {
			return fmt.Errorf("rank %d owns %d of %d blocks: must be %d", rank, n, len(m.Blocks), want)
		}
	}
	return nil
}

// balanced checks the bound of giving every part to the rank with the least:
// when the rank with the most got its last part, no rank had less.
func balanced(s shard.Sizes, m shard.BlockMap) error {
	loads, sum, largest, parts := make([]uint64, m.World), uint64(0), uint64(0), 0
	give := func(size uint64, rank int) {
		loads[rank] += size
		sum, largest = sum+size, max(largest, size)
		if size > 0 {
			parts++
		}
	}
	for i, size := range s.Blocks {
		give(size, m.Blocks[i])
	}
	give(s.Embed, m.Embed)
	give(s.FinalNorm, m.FinalNorm)
	give(s.Head, m.Head)
	n := uint64(m.World)
	if most := slices.Max(loads); n*most > sum+(n-1)*largest {
		return fmt.Errorf("a rank owns %d of %d elements: %d ranks that share parts of up to %d need own no more than %d", most, sum, n, largest, (sum+(n-1)*largest)/n)
	}
	if idle := slices.Index(loads, 0); idle >= 0 && parts >= m.World {
		return fmt.Errorf("rank %d owns nothing of %d parts", idle, parts)
	}
	return nil
}

// checkLaw holds who the run shows to own what against the law of the plan's
// map.
func (x *part) checkLaw(p *contract.Pass, r *evidence.Run, held holdings, step int) {
	if r.Config.Plan.Shard == plan.ShardTensors {
		return
	}
	for _, what := range r.Moments() {
		m, seen, err := x.observed(held, step, what)
		if p.Found(seen) && err == nil {
			err = law(r.Config.Plan.Shard, sharding.Sizes(&x.layout), m)
		}
		if err != nil {
			p.At(-1, step).Report(nil, nil, "%s shared out over ranks %v as a %s map: %v", what, x.group, r.Config.Plan.Shard, err)
		}
	}
}

// observed is the map by which the run holds its moments; seen is false where
// some were recorded by no rank.
func (x *part) observed(held holdings, step int, what string) (m shard.BlockMap, seen bool, err error) {
	m = shard.BlockMap{World: len(x.group), Blocks: slices.Repeat([]int{-1}, len(sharding.Sizes(&x.layout).Blocks))}
	for _, c := range x.cuts {
		who := held.places(x, c, step, what)
		if len(who) == 0 {
			return m, false, nil
		}
		owner := who[len(who)-1]
		switch x.layout.Units[c.Unit].Name {
		case model.EmbedUnit:
			m.Embed = owner
		case model.FinalUnit:
			if c.Name == model.HeadName {
				m.Head = owner
			} else {
				m.FinalNorm = owner
			}
		default:
			block := c.Unit - sharding.FirstBlock(&x.layout)
			if known := m.Blocks[block]; known >= 0 && known != owner {
				err = fmt.Errorf("parts of block %d are with ranks %d and %d", block, known, owner)
			}
			m.Blocks[block] = owner
		}
	}
	if sharding.Sizes(&x.layout).Head == 0 && x.layout.Part.First {
		m.Head = m.Embed
	}
	return m, true, err
}
