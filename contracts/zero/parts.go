package zero

import (
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/shard"
)

// part is one model part of one rank, as the plan has it.
type part struct {
	rank   int   // in the world
	group  []int // world ranks of its data-parallel group
	place  int   // in the group
	layout model.Layout
	cuts   []cut
	zero   shard.ZeRO
}

// cut is a range of the flat layout that is shared out as a whole: the i-th rank
// of the group owns elements [bounds[i], bounds[i+1]) of it.
type cut struct {
	name string
	shard.Range
	unit   int // -1 for the whole vector
	bounds []int
}

func (c *cut) own(place int) shard.Range {
	return shard.Range{Lo: c.Lo + c.bounds[place], Hi: c.Lo + c.bounds[place+1]}
}

// partsOf lists the model parts of a rank.
func partsOf(r *evidence.Run, rank int) []*part {
	p, dims := r.Config.Plan, r.Config.Plan.Dims()
	group := dims.Group(rank, names.DP)
	var out []*part
	for _, m := range p.Parts(r.Config.Model, dims.Coord(rank)) {
		x := &part{rank: rank, group: group, place: slices.Index(group, rank), layout: model.NewLayout(r.Config.Model, m)}
		x.cuts = cuts(p, &x.layout, len(group))
		x.zero = x.arithmetic(r)
		out = append(out, x)
	}
	return out
}

// all lists the parts of every rank.
func all(r *evidence.Run) []*part {
	var out []*part
	for rank := range r.Header.World {
		out = append(out, partsOf(r, rank)...)
	}
	return out
}

// firsts lists the parts of the first rank of every data-parallel group: each
// shared state once.
func firsts(r *evidence.Run) []*part {
	return slices.DeleteFunc(all(r), func(x *part) bool { return x.place != 0 })
}

// byElements reports whether a plan cuts by elements, not by blocks or tensors.
func byElements(p plan.Plan) bool { return p.Shard == plan.ShardFlat }

// cuts is what the plan's shard rule says of a layout's elements that have an
// optimizer state.
func cuts(p plan.Plan, l *model.Layout, dp int) []cut {
	if p.Zero == 1 && byElements(p) {
		return []cut{{"the whole vector", shard.Range{Hi: l.Owned}, -1, shard.Bounds(l.Owned, dp)}}
	}
	owners := owners(p.Shard, l, dp)
	var out []cut
	for u := range l.Units {
		unit := &l.Units[u]
		if unit.Hi > l.Owned {
			continue
		}
		if owners == nil {
			out = append(out, cut{unit.Name, unit.Range, u, shard.Bounds(unit.Len(), dp)})
			continue
		}
		for _, i := range unit.Params {
			x := &l.Params[i]
			bounds := make([]int, dp+1)
			for r := owners[x.Name] + 1; r <= dp; r++ {
				bounds[r] = x.Len()
			}
			out = append(out, cut{x.Name, x.Range(), u, bounds})
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
	m, err := blockMap(kind, sizes(l), dp)
	if err != nil {
		return out
	}
	first := firstBlock(l)
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

// firstBlock is the unit of a layout's first block.
func firstBlock(l *model.Layout) int {
	if l.Part.First {
		return 1
	}
	return 0
}

// sizes are the elements of what block maps share out.
func sizes(l *model.Layout) shard.Sizes {
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
			for len(s.Blocks) <= x.Unit-firstBlock(l) {
				s.Blocks = append(s.Blocks, 0)
			}
			s.Blocks[x.Unit-firstBlock(l)] += n
		}
	}
	return s
}

func blockMap(kind string, s shard.Sizes, dp int) (shard.BlockMap, error) {
	switch kind {
	case plan.ShardRoundRobin:
		return shard.RoundRobin(len(s.Blocks), dp)
	case plan.ShardContiguous:
		return shard.Contiguous(len(s.Blocks), dp)
	}
	return shard.Balanced(s, dp)
}

// arithmetic is the part as the formulas of package shard see it.
func (x *part) arithmetic(r *evidence.Run) shard.ZeRO {
	p := r.Config.Plan
	walk := len(p.RankWorkers(r.Config.Model, 0))
	z := shard.ZeRO{Stage: p.Zero, DP: len(x.group), Workers: r.Workers, MicroBatches: p.MicroBatches / walk, Moments: len(r.Moments())}
	for u := range x.layout.Units {
		unit := shard.Unit{Elements: x.layout.Units[u].Len(), Tied: x.layout.Units[u].Name == model.HeadUnit}
		unit.Copied = unit.Tied && !x.layout.Part.First
		if !byElements(p) {
			unit.Held = x.held(r, u)
		}
		z.Units = append(z.Units, unit)
	}
	return z
}

// held counts the elements of a unit that each rank owns under a map. A tied
// head's gradient goes to the embedding's owner, who may be on another stage.
func (x *part) held(r *evidence.Run, u int) []int {
	out := make([]int, len(x.group))
	if x.layout.Units[u].Name == model.HeadUnit {
		l := x.layout
		if !l.Part.First {
			first := r.Config.Plan.Parts(r.Config.Model, r.Config.Plan.Dims().Coord(0))[0]
			first.Tensor = l.Part.Tensor
			l = model.NewLayout(r.Config.Model, first)
		}
		out[owners(r.Config.Plan.Shard, &l, len(x.group))[model.EmbedName]] = x.layout.Units[u].Len()
		return out
	}
	for i := range x.cuts {
		if x.cuts[i].unit == u {
			for place := range out {
				out[place] += x.cuts[i].own(place).Len()
			}
		}
	}
	return out
}

// params lists the parameters that the part updates.
func (x *part) params() []*model.Param {
	var out []*model.Param
	for i := range x.layout.Params {
		if x.layout.Params[i].Off < x.layout.Owned {
			out = append(out, &x.layout.Params[i])
		}
	}
	return out
}
