// Package tp is contract C-TP-001: ranks that split heads, intermediate size and
// vocabulary compute what the dense model computes.
package tp

import (
	"github.com/lockstep-ml/lockstep/contracts/bounded"
	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/plan"
)

// subject is plans that split tensors.
var subject = compare.Subject{About: func(p plan.Plan) bool { return p.TP > 1 }, Lacks: "splits no tensors"}

// Contract is C-TP-001.
func Contract() *contract.Contract {
	c := func(n, says, reads string, class contract.Class, check func(*contract.Pass)) *contract.Clause {
		return &contract.Clause{ID: "C-TP-001." + n, Says: says, Class: class, Evidence: reads, Check: check}
	}
	return &contract.Contract{
		ID:        "C-TP-001",
		Title:     "Tensor-parallel ranks compute the dense model",
		Statement: "Slices of weights, activations and gradients on tensor-parallel ranks add up, bit for bit, to those of the model that is not split.",
		Doc:       doc,
		Clauses: []*contract.Clause{
			c("1", "Column parallel: the output columns of every rank are the dense output's, bit for bit.",
				"tap (q, k, v, gate, up, logits) of the test and the control run", contract.Exact, withTaps((*match).columns)),
			c("2", "Row parallel: the reduced sums, and the loss made of them, are the dense ones on every rank.",
				"tap (embed, attn, mlp), scalar (loss) of the test and the control run", contract.Exact, withTaps((*match).rows)),
			c("3", "Shards are contiguous slices of the dense weights and moments and nothing is lost; sizes that cannot be cut are refused, a vocabulary is cut by the shard rule.",
				"digest (weight, moments) of the test and the control run, the plan", contract.Exact, subject.WithPart(shards)),
			bounded.OrBound(c("4", "Backward: the reduced input gradients and the slices of weight gradients are the dense ones.",
				"tap (dmlp, dattn), digest (grad.worker, grad) of the test and the control run", contract.Exact, withTaps((*match).backward))),
			bounded.OrBound(c("5", "Replicated tensors stay equal on all ranks, and their gradients are neither multiplied nor partial.",
				"digest (grad.worker, grad, weight, moments), scalar of the test and the control run", contract.Exact, subject.WithPart(replicated))),
			bounded.OrBound(c("6", "KV heads: every head lies on as many ranks as the plan says; copies see equal keys and values, and their gradients are summed over exactly the ranks that hold them.",
				"digest (weight, grad), tap (k, v), comm (kv)", contract.Exact, withTaps((*match).kvHeads))),
			c("7", "All-reduces per block and micro-batch: two forward and two backward over exactly the tensor-parallel ranks, with the elements and bytes that the plan implies, and none beside those of KV copies and vocabulary.",
				"comm (tp, kv), phase, data", contract.Integer, subject.With(traffic)),
		},
		Control: compare.Unsplit,
		Judges:  subject.About,
	}
}

const doc = `Tensor parallelism cuts matrices by columns (q, k, v, gate, up, head) and by
rows (o, down, embedding), so that one sum closes each pair. A sum that is left
out, or done twice, gives finite numbers and a falling loss. Row-parallel sums
are canonical trees over groups, whatever the number of ranks, so the split
model has the dense one's bits, and equality is judged, not closeness. Where dp
does not divide the logical workers, the dense model is trained by as many
data-parallel ranks. A ring or a star has an order of its own over more than two
ranks: over data-parallel ones the first step's activations and workers'
gradients must still be equal, and each reduced gradient lies within the bound of
C-DDP-001.4; over tensor-parallel ones nothing can be compared, and the verdict
is inconclusive.

How each clause judges
  1  Digests of columns add up: the ranks' slices together must have the
     digest of the dense activation of the same logical worker and micro-batch,
     and their columns must cover it once. Finds a corrupted product, a bias
     that is not cut (sgl-project/sglang#19086), rotated heads.
  2  What the sums give, on every rank: embedding, attention and MLP outputs,
     and the loss with its vocabulary-parallel denominator. Finds sums left out,
     biases added once per rank (huggingface/text-generation-inference#1036,
     PaddlePaddle/Paddle#35186: invisible while biases are zero, so a case has
     other ones), vocabulary bounds off by one (apple/ml-cross-entropy#59,
     NVIDIA/Megatron-LM#1754), a denominator counted once per rank
     (NVIDIA/Megatron-LM#7452).
  3  Slices of weights and moments, before the first step and after each, add
     up to the control's; the plan's slices tile each parameter; planted sizes
     that do not divide are refused and an uneven vocabulary is not.
  4  Input gradients behind both column-parallel layers of every block, and
     weight gradients of all slices. Finds the missing conjugate of the
     forward sum (apple/ml-cross-entropy#42).
  5  Norm weights, row-parallel biases and a replicated embedding have a copy on
     each rank: all must equal the control's, so they can be neither the sum
     over ranks nor one rank's share (ml-explore/mlx-lm#1413 in another guise).
  6  Where there are fewer KV heads than ranks, copies of one head must agree
     and sum their gradients (huggingface/transformers#48307,
     pytorch/torchtitan#2577).
  7  All-reduces are counted per unit, direction and micro-batch, in program
     order, with their ranks, elements and bytes; the cost model
     (core/shard.TPCost) must say the same.

How to read a finding
  rank    whose copy or slice deviates; -1 where only the sum of all slices shows it
  tensor  a parameter, or the activation with its block and micro-batch
  Look at the lowest step and block first: everything behind it follows. A
  finding in clause 2 without one in clause 1 of the same block points at the
  sum; in clause 4 without 1 and 2 at the backward pass.`
