// Package pipe is contract C-PIPE-001: pipeline stages compute what the model
// that is not cut computes, by the schedule of the plan.
package pipe

import (
	"github.com/lockstep-ml/lockstep/contracts/bounded"
	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/plan"
)

// subject is plans with stages.
var subject = compare.Subject{About: func(p plan.Plan) bool { return p.PP > 1 }, Lacks: "has one stage"}

// Contract is C-PIPE-001.
func Contract() *contract.Contract {
	c := func(n, says, reads string, class contract.Class, check func(*contract.Pass)) *contract.Clause {
		return &contract.Clause{ID: "C-PIPE-001." + n, Says: says, Class: class, Evidence: reads, Check: check}
	}
	return &contract.Contract{
		ID:        "C-PIPE-001",
		Title:     "Pipeline stages compute the unsplit model",
		Statement: "Every block is on one stage, stages hand on what their neighbours computed in the order of the plan's schedule, and the accumulated gradients are those of the model that is not cut.",
		Doc:       doc,
		Clauses: []*contract.Clause{
			c("1", "Every block is owned by exactly one stage, the embedding by the first, final norm and head by the last.",
				"phase, digest (weight) before the first step", contract.Integer, subject.With(owned)),
			c("2", "At every boundary sender and receiver have the shape of the micro-batch, also of a shorter one.",
				"message", contract.Integer, subject.With(shaped)),
			c("3", "What a stage receives is what its neighbour sent: same micro-batch, same bits, forward and backward.",
				"message", contract.Exact, subject.With(delivered)),
			bounded.OrBound(c("4", "Accumulated gradients, and what the optimizer makes of them, are those of the unsplit model.",
				"digest (grad.worker, grad, weight, moments), scalar of the test and the control run", contract.Exact, subject.WithPart(accumulated))),
			c("5", "Stages follow the plan's schedule: it respects all dependencies, cannot deadlock without buffers, and holds no more activations than its bound.",
				"phase, message, live, memory", contract.Integer, withPlan(scheduled)),
			c("6", "The idle share of the schedule that was run, in unit slots with equal stages, is (P-1)/(M+P-1), interleaved (P-1)/(V*M+P-1).",
				"phase, message", contract.Integer, withPlan(idle)),
			bounded.OrBound(c("7", "Tied embeddings: first and last stage exchange one gradient and one weight a step, the summed gradient is the unsplit model's, and the copies stay equal.",
				"comm (pp), digest (weight, grad) of the test and the control run", contract.Exact, subject.WithPart(tied))),
		},
		Control: compare.Unsplit,
		Judges:  subject.About,
	}
}

const doc = `Pipeline parallelism cuts the model by layers and the batch into micro-batches.
A block that nobody owns, two messages in swapped order or a gradient that one
micro-batch does not add give plausible losses. Gradients add up in ascending
order of micro-batches on every schedule, so the pipeline has the bits of the
model that is not cut: of the single worker, or, where dp does not divide the
logical workers, of as many data-parallel ranks. Where a ring or a star reduces
in another order, each step's gradient lies within the bound of C-DDP-001.4.

How each clause judges
  1  Which rank ran which unit over which micro-batch, and where weights lie.
     Finds blocks owned by nobody or twice after uneven cuts
     (ml-explore/mlx-lm#1688, NVIDIA/Megatron-LM#1304).
  2  Rows and columns of every message on both sides, against the sequences
     that the plan gives the micro-batch. Finds buffers sized by the first
     micro-batch (pytorch/pytorch#126600, deepspeedai/DeepSpeed#3195).
  3  Both sides digest what they have, per boundary, direction and
     micro-batch. Finds messages paired in the wrong order
     (NVIDIA/Megatron-LM#5271) and stale receive buffers.
  4  Against the control: each logical worker's gradient, the reduced one,
     weights, moments and scalars. Finds gradients cleared within a step
     (NVIDIA-NeMo/Automodel#3530) or scaled per micro-batch
     (pytorch/torchtitan#1732).
  5  The actions of each stage are read back from phases and messages, in
     program order, and must be the plan's. The schedule as it was run is
     checked for dependencies and run by a simulator whose sends wait for their
     receivers. Activations held at a time: min(P-s, M) for 1F1B, M for GPipe,
     as simulated for interleaved. Fewer micro-batches than stages are legal.
  6  The same schedule, simulated with passes of one slot, takes 2(V*M+P-1)
     slots. Overhead over ideal, (P-1)/(V*M), is another figure and not the idle
     share. Where P does not divide M an interleaved schedule idles longer:
     then it must take as long as the plan's own.
  7  Digests of head and embedding have one identity, so the copies can be
     compared; messages of the two exchanges are counted.

How to read a finding
  rank    who deviates; of a message its receiver; -1 where only a sum shows it
  Clauses 1 and 5 say what ran, 2 and 3 what crossed a boundary, 4 and 7 what
  came of it: the first that is violated is the cause.`
