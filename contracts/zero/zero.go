// Package zero is contract C-ZERO-001: sharding gradients, optimizer state and
// weights over data-parallel ranks changes where numbers lie, never the numbers,
// and saves the memory and moves the bytes that it should.
package zero

import (
	"github.com/lockstep-ml/lockstep/contracts/bounded"
	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// Contract is C-ZERO-001.
func Contract() *contract.Contract {
	return &contract.Contract{
		ID:        "C-ZERO-001",
		Title:     "Sharded training is unsharded training",
		Statement: "ZeRO stages 1, 2 and 3 give the weights of unsharded data parallelism bit for bit, with shards that are disjoint and cover everything, and with the memory and traffic of the stage's formulas.",
		Doc:       doc,
		Clauses:   clauses(),
		Judges:    func(p plan.Plan) bool { return p.Zero > 0 },
		Control:   Unsharded,
	}
}

// with is evidence.With for plans that shard.
func with(check func(*contract.Pass, *evidence.Run)) func(*contract.Pass) {
	return evidence.With(func(p *contract.Pass, r *evidence.Run) {
		switch {
		case r.Config.Plan.Zero == 0:
			p.Doubt("plan %s of the test run shards nothing", r.Config.Plan)
		case !r.Config.Evidence.Digests:
			p.Doubt("the test run was recorded without digests")
		default:
			check(p, r)
		}
	})
}

func clauses() []*contract.Clause {
	c := func(n, says, reads string, class contract.Class, check func(*contract.Pass)) *contract.Clause {
		return &contract.Clause{ID: "C-ZERO-001." + n, Says: says, Class: class, Evidence: reads, Check: check}
	}
	return []*contract.Clause{
		c("1", "Within each sharding unit the ranks' shards are contiguous, disjoint and cover the unit; by elements, their sizes are within 1 of total/world, the first total mod world ranks one more.",
			"digest (moments, grad, in stage 3 weight): which elements each covers", contract.Integer, with(sharded)),
		bounded.OrBound(c("2", "The sharded step is the full step, bit for bit: gradients, norm, clipping, weights, moments, loss and step counters are those of unsharded data parallelism on as many ranks.",
			"digest (grad.worker, grad, weight, moments), scalar of the test and the control run", contract.Exact, with(full))),
		c("3", "After a gather all ranks hold equal weights, and each slice came from its owner.",
			"digest (updated, weight), gather (use)", contract.Exact, with(gathered)),
		c("4", "In stage 3 a rank holds only its shard at rest, a unit is gathered before use and released after, and a pass finds and leaves the weights of the last step; in stages 1 and 2 weights stay whole.",
			"gather, phase, memory, digest (weight)", contract.Exact, with(resting)),
		c("5", "Live bytes of weights, gradients and moments, and of all together, are at the stage's formula: at the end of each step and at the peak within it; beside these a rank holds no more than without sharding.",
			"memory", contract.Integer, with(living)),
		c("6", "Bytes on the wire per step, those that the operations imply and those counted as they move, equal the stage's formula exactly.",
			"comm", contract.Integer, with(moved)),
		bounded.OrBound(c("7", "Block maps give every block, the embedding, the final norm and the head one owner and report the true imbalance, and a run under a map is the full step.",
			"digest (moments) of the test run, digests of the control run, memory (moments)", contract.Exact, with(mapped))),
	}
}

const doc = `ZeRO spreads over the data-parallel ranks what plain data parallelism holds on
each of them: stage 1 the optimizer state, stage 2 also the gradients, stage 3
also the weights. It is bookkeeping, and bookkeeping fails silently: a slice that
nobody updates, a stale copy, a norm of one shard all leave ranks that agree
with each other and a loss that falls. So a sharded run is held, bit for bit,
against unsharded data parallelism on as many ranks (which C-DDP-001 holds
against a single worker), which is exact for every number of ranks.

How each clause judges
  1  Every digest says which elements it covers. Per sharding unit (stage 1: the
     whole vector; stages 2 and 3: embedding, each block, final norm with head)
     the ranks' parts must follow each other without gap or overlap, by the shard
     rule. Finds remainders given to the wrong rank, empty shards that upset
     their neighbours (deepspeedai/DeepSpeed#129, deepspeedai/DeepSpeed#8297).
  2  Shards' digests add up to the digest of the whole; where a ring or a star
     adds shards in another order, each step lies within the bound of
     C-DDP-001.4. Finds a sum in another
     order, a slice that is never updated (pytorch/pytorch#176076), clipping by
     the norm of the own shard (pytorch/torchtitan#766, sgl-project/SpecForge#663),
     gradients that are reduced twice (hpcaitech/ColossalAI#247), and a step
     counter that stands still on a rank that owns nothing.
  3  Owners record what they made of their slices before they publish them. What
     every rank then has must add up from exactly these: a slice of another
     rank, or of an earlier step, shows (hpcaitech/ColossalAI#2391,
     NVIDIA/Megatron-LM#6492).
  4  Stage 3 records each gather, use and release with the digest of what a pass
     found and left. Every pass needs a gather before and a release after it;
     both digests must be of the last step's weights. Finds units that are never
     released (deepspeedai/DeepSpeed#3025), released or overwritten too early,
     and forward passes on last step's weights (NVIDIA/Megatron-LM#950).
     Released buffers are filled with NaN, so late reads do not stay hidden.
  5  Allocations are counted where they are made. The formulas are those of
     package core/shard: weights, gradients with the binary counter over D/dp
     logical workers, moments, in stage 3 the unit in use and the next one, whose
     gather is under way. A leak of one buffer is a violation, and so is a
     saving that the formula does not know.
  6  All bytes of the data-parallel group, summed over its ranks: with P
     parameters, n ranks, D logical workers, m micro-batches per worker, stages 0
     and 1 move 8P(n-1), block maps 12P(n-1), stage 2 4P(n-1)(D/n+1), stage 3
     4P(n-1)(D/n)(2m+1), plus the gradient of a tied head and one loss value.
     Two sums are held against that: what the recorded operations and their
     numbers of elements imply, whatever algorithm runs them, and what the
     communicator counts of peers' buffers as it reads and writes them. Finds gathers and reductions too many (NVIDIA/cosmos-framework#161).
  7  The three maps are checked for the model and the number of ranks of every
     case; under a map, moments show who owns each block, the allocated bytes
     must give the imbalance (largest over mean) that the map reports, and the
     result is compared as in clause 2. What a map must be like is stated here,
     without the functions that make it: round-robin, block i on rank i mod n;
     contiguous, owners ascend and numbers of blocks differ by one at most;
     balanced, the largest load is at most mean + (1-1/n) of the largest part, and
     no rank is idle where there are parts for all. Both the map and what the run
     made of it are held against that.

How to read a finding
  rank    who deviates; -1 where the shards of several ranks are in question
  step    optimizer step, from 0; -1 is the state before the first
  tensor  the parameter, of which only the digest is compared
  A finding in clause 2 with one in clause 1 is a wrong cut; with one in clause 3
  or 4 a wrong copy; alone, wrong arithmetic: look at grad before weight.`

// Unsharded is the control of a configuration: unsharded data parallelism on the
// same mesh. It cuts as many micro-batches: pipeline stages hold what crosses
// their boundaries for each of them.
func Unsharded(cfg spec.Config) spec.Config {
	p := cfg.Plan
	p.Zero, p.Shard = 0, ""
	return compare.On(cfg, p)
}
