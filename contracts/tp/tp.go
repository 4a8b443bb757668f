// Package tp is contract C-TP-001: ranks that split heads, intermediate size and
// vocabulary compute what the dense model computes.
package tp

import (
	_ "embed" // explain.txt

	"github.com/lockstep-ml/lockstep/contracts/bounded"
	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/plan"
)

// subject is plans that split tensors.
var subject = compare.Subject{About: func(p plan.Plan) bool { return p.TP > 1 }, Lacks: "splits no tensors"}

// Contract is C-TP-001.
func Contract() *contract.Contract {
	c := contract.Numbered("C-TP-001")
	return &contract.Contract{
		ID:        "C-TP-001",
		Title:     "Tensor-parallel ranks compute the dense model",
		Statement: "Slices of weights, activations and gradients on tensor-parallel ranks add up, bit for bit, to those of the model that is not split.",
		Doc:       doc,
		Clauses: []*contract.Clause{
			c("1", "Column parallel: the output columns of every rank are the dense output's, bit for bit.",
				"tap (q, k, v, gate, up, logits) of the test and the control run", contract.Exact, withTaps((*match).columns)).In(contract.Forward),
			c("2", "Row parallel: the reduced sums, and the loss made of them, are the dense ones on every rank.",
				"tap (embed, attn, mlp), scalar (loss) of the test and the control run", contract.Exact, withTaps((*match).rows)).In(contract.Forward),
			c("3", "Shards are contiguous slices of the dense weights and moments and nothing is lost, no two buffers share memory; sizes that cannot be cut are refused, a vocabulary is cut by the shard rule.",
				"digest (weight, moments) of the test and the control run, span, the plan", contract.Exact, subject.WithPart(shards)),
			bounded.OrBound(c("4", "Backward: the reduced input gradients and the slices of weight gradients are the dense ones.",
				"tap (dmlp, dattn), digest (grad.worker, grad) of the test and the control run", contract.Exact, withTaps((*match).backward)).In(contract.Backward)),
			bounded.OrBound(c("5", "Replicated tensors stay equal on all ranks, and their gradients are neither multiplied nor partial.",
				"digest (grad.worker, grad, weight, moments), scalar of the test and the control run", contract.Exact, subject.WithPart(replicated))),
			bounded.OrBound(c("6", "KV heads: every head lies on as many ranks as the plan says; copies see equal keys and values, and their gradients are summed over exactly the ranks that hold them.",
				"digest (weight, grad), tap (k, v), comm (kv)", contract.Exact, withTaps((*match).kvHeads)).In(contract.Backward)),
			c("7", "All-reduces per block and micro-batch: two forward and two backward over exactly the tensor-parallel ranks, with the elements and bytes that the plan implies, and none beside those of KV copies and vocabulary.",
				"comm (tp, kv), phase, data", contract.Integer, subject.With(traffic)).In(contract.Forward),
		},
		Control: compare.Unsplit,
		Judges:  subject.About,
	}
}

//go:embed explain.txt
var doc string
