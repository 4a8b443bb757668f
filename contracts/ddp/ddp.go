// Package ddp is contract C-DDP-001: data-parallel replicas stay identical, and
// identical to what one worker computes on the whole batch.
package ddp

import (
	"github.com/lockstep-ml/lockstep/contracts/bounded"
	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// subject is plans with data-parallel replicas, and the single worker that all of
// them are compared with.
var subject = compare.Subject{
	About: func(p plan.Plan) bool { return p.Dims().DP > 1 || p.World() == 1 },
	Lacks: "has no data-parallel replicas",
}

// Contract is C-DDP-001.
func Contract() *contract.Contract {
	c := func(n, says, reads string, class contract.Class, check func(*contract.Pass)) *contract.Clause {
		return &contract.Clause{ID: "C-DDP-001." + n, Says: says, Class: class, Evidence: reads, Check: check}
	}
	return &contract.Contract{
		ID:        "C-DDP-001",
		Title:     "Data-parallel replicas are identical",
		Statement: "After all-reduce and optimizer step all workers hold identical weights, the ones that a single worker gets from the same global batch.",
		Doc:       doc,
		Clauses: []*contract.Clause{
			c("1", "Replicas start with bit-equal weights and moments.",
				"digest (weight, moments) before the first step; in ZeRO stage 3 gather (use) of the first", contract.Exact, subject.With(initial)),
			c("2", "After every step the weights, the moments and the step counters of all replicas are bit-equal, and no two buffers share memory.",
				"digest (weight, moments), scalar (counter), span, diff; in ZeRO stage 3 gather (use)", contract.Exact, subject.With(updated)),
			c("3", "Every logical worker's gradient enters exactly one reduction per unit and step, over exactly the ranks that replicate the unit, issued while the backward pass still runs.",
				"leaf, comm (dp: all-reduce, reduce-scatter), issue, phase", contract.Integer, subject.With(reduced)),
			bounded.OrBound(c("4", "The reduced gradient, the weights, the moments and the loss are those of a single worker on the same global batch.",
				"digest (grad.worker, grad, weight, moments), scalar of the test and the control run", contract.Exact, subject.WithPair(single))),
			c("5", "All ranks issue the same sequence of collectives: operation, unit, size and order.",
				"comm", contract.Integer, subject.With(ordered)),
			bounded.OrBound(c("6", "Exactly those elements change in a step that change in the reference update, and over the run every element moves that has a reference update.",
				"changed, unmoved of the test and the control run, captured elements", contract.Exact, subject.WithPair(progressed))),
			c("7", "No gradient, weight, moment or loss is NaN or infinite, and no step is skipped; otherwise the first producer is named.",
				"digest, scalar (loss), skip", contract.Integer, subject.With(finite)),
			c("8", "The data shards of the ranks are disjoint and cover the batch, and all ranks weigh the loss by the same number of valid tokens.",
				"data, tokens of the test and the control run", contract.Integer, subject.WithPair(covered)),
		},
		Judges: subject.About,
	}
}

const doc = `Data parallelism keeps a replica of the model on every rank and sums the
gradients. If one rank drifts nothing fails: the loss still falls. So equality
is checked, bit for bit, after every step. Ranks that are all equally wrong
agree perfectly, so equality alone is not enough: the same global batch is
trained by a single worker, the control, and every reduced gradient, weight,
moment and scalar must have its bits. The arithmetic makes this possible: sums
over workers are one fixed tree, whatever the number of ranks.

Where a plan also splits tensors or layers, replicas are the ranks that share a
tensor-parallel and a pipeline place: each such data-parallel group is judged by
itself, and slices and stages of all ranks must add up to the control. ZeRO leaves
fewer replicas: weights in stages 1 and 2, in stage 3 the units that every rank
gathers before it computes with them; shards must add up like slices.

How each clause judges
  1  Digests of the initial weights and moments, rank against rank. Where every
     rank has its own seed and the broadcast is missing, gradients agree for
     ever and only this differs (pytorch/torchtitan#166, allenai/OLMo-core#319).
     Seeds are not judged, weights are (karpathy/nanoGPT#22).
  2  Digests after every step, each rank against the majority, and where every
     buffer lies: replicas that share memory are equal by accident. Finds one
     flipped bit (NVIDIA/nccl#434, NVIDIA/nccl#2053), a rank with another
     learning rate (horovod/horovod#526, horovod/horovod#1609), a step without
     synchronisation, gradients of two tensors exchanged (chainer/chainer#2896,
     bytedance/byteps#176).
  3  Every worker's gradient is recorded as it enters the rank's partial sum,
     and every collective beneath all wrappers. A unit reduced never, twice,
     partly or over the wrong ranks is seen even where the numbers look
     plausible, and so is a sum over tensor-parallel ranks. Under ZeRO reductions
     are reduce-scatters: of the whole vector in stage 1, of each unit and round
     of workers in stages 2 and 3. They must be issued during the backward pass:
     of the L blocks of a rank at least L-1 before its end (upstream runs them all
     afterwards), but for the whole vector, which is complete only then.
  4  Against the control. Finds the mean of means under unequal token counts
     (pytorch/torchtitan#2206, ml-explore/mlx-lm#1413, verl-project/verl#5625,
     PrimeIntellect-ai/prime-rl#1957), gradients that are not zeroed, a schedule
     that advances once per rank (huggingface/transformers#24088,
     huggingface/accelerate#1398), a step counter that stands still
     (allenai/OLMo-core#317). Workers' own gradients come first: if they differ
     the computation is wrong, else the communication. Plans outside the tree
     (a world that does not divide the groups, a ring, a coordinator) are judged
     one step at a time by a derived bound.
  5  The lists of collectives of all ranks of a communicator, position by
     position; reductions beside the computation have a communicator of their
     own. Two operations of one size in swapped order hang nothing and corrupt
     silently (pytorch/pytorch#75902, pytorch/pytorch#64629).
  6  Which elements a step changed. Finds optimizers that stop after the first
     rows (hpcaitech/ColossalAI#633) and parameters that move without a gradient
     (pytorch/pytorch#28294). The control's own changes are held against the
     update recomputed from its captured gradient.
  7  NaN compares equal to nothing. Once one rank has one, the reduction gives
     it to all; the report names the earliest step and, in it, the worker's
     gradient before any sum (ecmwf/WeatherGenerator#2724, microsoft/dion#76).
  8  The ids of the sequences, rank by rank: none twice in a data-parallel group,
     none missing, none elsewhere than the plan says (ranks that split one model
     take the same), and the token counts that weigh the loss
     (pytorch/pytorch#38174, k2-fsa/snowfall#152).

How to read a finding
  rank    who deviates from the majority (from the lowest rank, if it is a tie)
          or from the control; -1 where nobody can be blamed
  step    optimizer step, from 0; -1 is the state before the first
  tensor, index   the first element that differs, with its bits on both sides
  On products a rank in clauses 1 and 2 deviates from its data-parallel peers.
  Look at the lowest step first; what follows it is its consequence. A finding
  in clause 4 whose workers' gradients agree points at the reduction; one in
  clause 2 without one in clause 4 for other ranks points at that rank alone.`

// single is clause 4: the result is that of the single worker on the same
// global batch; where the plan does not promise its bits, every step is judged
// from the plan's own weights.
func single(p *contract.Pass, c *compare.Comparison) {
	if !c.Test.Exact() {
		bounded.Judge(p, c.Test, nil)
		c.Scalars(nil, trace.LR)
		return
	}
	// Workers' own gradients come first: a difference there is of the computation,
	// not of the communication.
	c.Gradients(nil)
	for step := range c.Test.Config.Steps {
		c.State(step, nil)
	}
	c.Scalars(c.LastStage, trace.Loss)
	c.Scalars(nil, trace.Norm, trace.Coef, trace.LR)
}
