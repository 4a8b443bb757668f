package zero

import (
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/contracts/sharding"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
)

// part is one model part of one rank, as the plan has it.
type part struct {
	rank   int   // in the world
	group  []int // world ranks of its data-parallel group
	place  int   // in the group
	layout model.Layout
	cuts   []sharding.Cut
	zero   sharding.ZeRO
}

// partsOf lists the model parts of a rank.
func partsOf(r *evidence.Run, rank int) []*part {
	p, dims := r.Config.Plan, r.Config.Plan.Dims()
	group := dims.Group(rank, names.DP)
	var out []*part
	for _, m := range p.Parts(r.Config.Model, dims.Coord(rank)) {
		x := &part{rank: rank, group: group, place: slices.Index(group, rank), layout: model.NewLayout(r.Config.Model, m)}
		x.cuts = sharding.Cuts(p, &x.layout)
		x.zero = sharding.Of(p, r.Config.Model, &x.layout, len(r.Moments()))
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
