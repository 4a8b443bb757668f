// Package zero is contract C-ZERO-001: sharding gradients, optimizer state and
// weights over data-parallel ranks changes where numbers lie, never the numbers,
// and saves the memory and moves the bytes that it should.
package zero

import (
	_ "embed" // explain.txt
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/bounded"
	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/contracts/sharding"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// Contract is C-ZERO-001.
func Contract() *contract.Contract {
	c := contract.Numbered("C-ZERO-001")
	return &contract.Contract{
		ID:        "C-ZERO-001",
		Title:     "Sharded training is unsharded training",
		Statement: "ZeRO stages 1, 2 and 3 give the weights of unsharded data parallelism bit for bit, with shards that are disjoint and cover everything, and with the memory and traffic of the stage's formulas.",
		Doc:       doc,
		Clauses: []*contract.Clause{
			c("1", "Within each sharding unit the ranks' shards are contiguous, disjoint and cover the unit; by elements, their sizes are within 1 of total/world, the first total mod world ranks one more.",
				"digest (moments, grad, in stage 3 weight): which elements each covers", contract.Integer, with(sharded)).In(contract.Update),
			bounded.OrBound(c("2", "The sharded step is the full step, bit for bit: gradients, norm, clipping, weights, moments, loss and step counters are those of unsharded data parallelism on as many ranks.",
				"digest (grad.worker, grad, weight, moments), scalar of the test and the control run", contract.Exact, with(full)).In(contract.Reduction)),
			c("3", "After a gather all ranks hold equal weights, and each slice came from its owner.",
				"digest (updated, weight), gather (use)", contract.Exact, with(gathered)).In(contract.Publication),
			c("4", "In stage 3 a rank holds only its shard at rest, a unit is gathered before use and released after, and a pass finds and leaves the weights of the last step; in stages 1 and 2 weights stay whole.",
				"gather, phase, memory, digest (weight)", contract.Exact, with(resting)).In(contract.Forward),
			c("5", "Live bytes of weights, gradients and moments, and of all together, are at the stage's formula: at the end of each step and at the peak within it; beside these a rank holds no more than without sharding.",
				"memory", contract.Integer, with(living)).In(contract.Publication),
			c("6", "Bytes on the wire per step, those that the operations imply and those counted as they move, equal the stage's formula exactly.",
				"comm", contract.Integer, with(moved)).In(contract.Publication),
			bounded.OrBound(c("7", "Block maps give every block, the embedding, the final norm and the head one owner and report the true imbalance, and a run under a map is the full step.",
				"digest (moments) of the test run, digests of the control run, memory (moments)", contract.Exact, with(mapped)).In(contract.Update)),
		},
		Judges:  func(p plan.Plan) bool { return p.Zero > 0 },
		Control: Unsharded,
	}
}

// with is evidence.With for plans that shard.
func with(check func(*contract.Pass, *evidence.Run)) func(*contract.Pass) {
	return evidence.With(func(p *contract.Pass, r *evidence.Run) {
		switch {
		case r.Config.Plan.Zero == 0:
			p.Doubt("plan %s of the test run shards nothing", r.Config.Plan)
		case !r.Config.Recording.Digests:
			p.Doubt("the test run was recorded without digests")
		default:
			check(p, r)
		}
	})
}

//go:embed explain.txt
var doc string

// Unsharded is the control of a configuration: unsharded data parallelism on the
// same mesh. It cuts as many micro-batches: pipeline stages hold what crosses
// their boundaries for each of them.
func Unsharded(cfg spec.Config) spec.Config {
	p := cfg.Plan
	p.Zero, p.Shard = 0, ""
	return compare.On(cfg, p)
}

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
