package plan

import (
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
)

// Exact reports whether the plan gives the bits of the single worker.
func (p Plan) Exact(c model.Config) bool { return p.SameBits(Plan{}, c) }

// SameBits reports whether two plans that are valid for c promise the same bits
// in every step. Plans that do not may have them all the same. Where MPI sums, two runs
// of one plan do not promise it.
func (p Plan) SameBits(q Plan, c model.Config) bool {
	return p.sums(c) == q.sums(c) && p.sums(c).Comm != names.MPI
}

// Unsplit is the plan's control, which has the whole model on every rank: the
// single worker where the plan gives its bits, else data parallelism of as many
// ranks, with the order of the plan's sums where that can be had. SameBits says
// whether it was.
func (p Plan) Unsplit(c model.Config) Plan {
	p.defaults()
	switch {
	case p.Exact(c):
		return Plan{DP: 1}
	case p.sums(c).Comm == "" || p.Comm == names.MPI:
		return Plan{DP: p.DP}
	}
	return Plan{DP: p.DP, Zero: p.Zero, Shard: p.Shard, Comm: p.Comm}
}

// CanonicalActivations reports whether the plan promises the activations of the
// dense model, given its weights: no tensor-parallel sum has an order of its own.
func (p Plan) CanonicalActivations() bool {
	p.defaults()
	return p.Comm == names.Tree || p.TP <= 2
}

// sums keeps of a plan what decides the order of its sums. A tree's order is
// canonical, and two ranks have one order only; then the number of logical
// workers decides. A star adds in the order of ranks whatever it reduces; where
// a ring begins to add depends on the place of an element in what is reduced.
func (p Plan) sums(c model.Config) Plan {
	p.defaults()
	if p.Comm == names.Tree || max(p.DP, p.TP) <= 2 {
		return Plan{DP: p.Workers(c)}
	}
	p.Schedule = ""
	if p.Comm == names.Star {
		p.PP, p.Virtual, p.MicroBatches, p.Shard = 0, 0, 0, ""
		p.Zero = p.Zero / 2 * 2 // which workers a rank walks
	}
	switch {
	case p.TP > 2:
		return p
	case p.Comm == names.Star:
		p.TP, p.Vocab = 0, ""
	case p.TP == 1 && p.Zero != 1 && p.Shard == ShardFlat: // units are cut alike, whoever holds them
		p.PP, p.Virtual, p.Vocab = 0, 0, ""
	}
	p.MicroBatches = 0
	return p
}
