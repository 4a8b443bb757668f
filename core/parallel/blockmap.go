package parallel

import (
	"slices"

	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/shard"
)

// blockSegments gives each block of a layout, its embedding, final norm and head
// one owner, by the block map of the given kind over the blocks of this layout
// (a pipeline stage deals out its own).
func blockSegments(kind string, l *model.Layout, dp int) ([]Segment, error) {
	m, err := blockMap(kind, l, dp)
	if err != nil {
		return nil, err
	}
	var out []Segment
	give := func(name string, r shard.Range, unit, owner int) {
		out = append(out, Segment{Name: name, Range: r, Unit: unit, Bounds: whole(r.Len(), owner, dp)})
	}
	block := 0
	for u := range l.Units {
		unit := &l.Units[u]
		switch unit.Name {
		case model.HeadUnit: // tied: no state of its own
		case model.EmbedUnit:
			give(unit.Name, unit.Range, u, m.Embed)
		case model.FinalUnit:
			for _, i := range unit.Params {
				p, owner := &l.Params[i], m.FinalNorm
				if p.Name == model.HeadName {
					owner = m.Head
				}
				give(p.Name, p.Range(), u, owner)
			}
		default:
			give(unit.Name, unit.Range, u, m.Blocks[block])
			block++
		}
	}
	return out, nil
}

func blockMap(kind string, l *model.Layout, dp int) (shard.BlockMap, error) {
	sizes := BlockSizes(l)
	switch kind {
	case plan.ShardRoundRobin:
		return shard.RoundRobin(len(sizes.Blocks), dp)
	case plan.ShardContiguous:
		return shard.Contiguous(len(sizes.Blocks), dp)
	}
	return shard.Balanced(sizes, dp)
}

// BlockSizes are the elements of a layout that block maps share out. What the
// layout does not hold, and a tied head, has size 0.
func BlockSizes(l *model.Layout) shard.Sizes {
	var s shard.Sizes
	for u := range l.Units {
		unit := &l.Units[u]
		switch unit.Name {
		case model.HeadUnit:
		case model.EmbedUnit:
			s.Embed = uint64(unit.Len())
		case model.FinalUnit:
			norm := l.Params[unit.Params[0]].Len()
			s.FinalNorm, s.Head = uint64(norm), uint64(unit.Len()-norm)
		default:
			s.Blocks = append(s.Blocks, uint64(unit.Len()))
		}
	}
	return s
}

// tensorSegments makes every parameter with a state one segment and deals them
// out whole: the i-th name in sorted order belongs to rank i mod dp.
func tensorSegments(l *model.Layout, dp int) []Segment {
	var names []string
	for i := range l.Params {
		if l.Params[i].Off < l.Owned {
			names = append(names, l.Params[i].Name)
		}
	}
	slices.Sort(names)
	var out []Segment
	for i := range l.Params {
		p := &l.Params[i]
		if place, ok := slices.BinarySearch(names, p.Name); ok && p.Off < l.Owned {
			out = append(out, Segment{Name: p.Name, Range: p.Range(), Unit: p.Unit, Bounds: whole(p.Len(), place%dp, dp)})
		}
	}
	return out
}
