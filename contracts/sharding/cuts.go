// Package sharding is what contracts hold runs under ZeRO against: which rank
// owns what, how many bytes a rank holds, and what moves in a step. It derives
// all three from the plan by itself, in other terms than training does: of
// core/shard it takes the shard rule and the block maps, which C-ZERO-001.7
// judges by their laws.
package sharding

import (
	"slices"

	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/shard"
)

// Cut is a range of the flat layout that is shared out as a whole: the i-th rank
// of the data-parallel group owns elements [Bounds[i], Bounds[i+1]) of it.
type Cut struct {
	Name string
	shard.Range
	Unit   int // -1 for the whole vector
	Bounds []int
}

// Own is the range of the flat layout that the rank at a place of the group owns.
func (c *Cut) Own(place int) shard.Range {
	return shard.Range{Lo: c.Lo + c.Bounds[place], Hi: c.Lo + c.Bounds[place+1]}
}

// ByElements reports whether a plan cuts by elements, not by blocks or tensors.
func ByElements(p plan.Plan) bool { return p.Shard == plan.ShardFlat }

// Cuts is what the plan's shard rule says of a layout's elements that have an
// optimizer state.
func Cuts(p plan.Plan, l *model.Layout) []Cut {
	dp := p.Dims().DP
	if p.Zero == 1 && ByElements(p) {
		return []Cut{{"the whole vector", shard.Range{Hi: l.Owned}, -1, shard.Bounds(l.Owned, dp)}}
	}
	owners := owners(p.Shard, l, dp)
	var out []Cut
	for u := range l.Units {
		unit := &l.Units[u]
		if unit.Hi > l.Owned {
			continue
		}
		if owners == nil {
			out = append(out, Cut{unit.Name, unit.Range, u, shard.Bounds(unit.Len(), dp)})
			continue
		}
		for _, i := range unit.Params {
			x := &l.Params[i]
			bounds := make([]int, dp+1)
			for r := owners[x.Name] + 1; r <= dp; r++ {
				bounds[r] = x.Len()
			}
			out = append(out, Cut{x.Name, x.Range(), u, bounds})
		}
	}
	return out
}

// owners says which rank of the group has each parameter under a map; nil
// where the cut is by elements.
func owners(kind string, l *model.Layout, dp int) map[string]int {
	out := map[string]int{}
	switch kind {
	case plan.ShardFlat:
		return nil
	case plan.ShardTensors:
		var names []string
		for i := range l.Params {
			if l.Params[i].Off < l.Owned {
				names = append(names, l.Params[i].Name)
			}
		}
		slices.Sort(names)
		for i, n := range names {
			out[n] = i % dp
		}
		return out
	}
	m, err := BlockMap(kind, Sizes(l), dp)
	if err != nil {
		return out
	}
	first := FirstBlock(l)
	for i := range l.Params {
		x := &l.Params[i]
		switch l.Units[x.Unit].Name {
		case model.EmbedUnit, model.HeadUnit:
			out[x.Name] = m.Embed
		case model.FinalUnit:
			out[x.Name] = m.FinalNorm
			if x.Name == model.HeadName {
				out[x.Name] = m.Head
			}
		default:
			out[x.Name] = m.Blocks[x.Unit-first]
		}
	}
	return out
}

// FirstBlock is the unit of a layout's first block.
func FirstBlock(l *model.Layout) int {
	if l.Part.First {
		return 1
	}
	return 0
}

// Sizes are the elements of what block maps share out.
func Sizes(l *model.Layout) shard.Sizes {
	var s shard.Sizes
	for i := range l.Params {
		x, n := &l.Params[i], uint64(l.Params[i].Len())
		switch unit := l.Units[x.Unit].Name; {
		case unit == model.HeadUnit: // tied: no state of its own
		case unit == model.EmbedUnit:
			s.Embed += n
		case x.Name == model.HeadName:
			s.Head += n
		case unit == model.FinalUnit:
			s.FinalNorm += n
		default:
			for len(s.Blocks) <= x.Unit-FirstBlock(l) {
				s.Blocks = append(s.Blocks, 0)
			}
			s.Blocks[x.Unit-FirstBlock(l)] += n
		}
	}
	return s
}

// BlockMap is the map of a kind over dp ranks. It fails as those of core/shard
// do.
func BlockMap(kind string, s shard.Sizes, dp int) (shard.BlockMap, error) {
	switch kind {
	case plan.ShardRoundRobin:
		return shard.RoundRobin(len(s.Blocks), dp)
	case plan.ShardContiguous:
		return shard.Contiguous(len(s.Blocks), dp)
	}
	return shard.Balanced(s, dp)
}
