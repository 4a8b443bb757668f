// Package pipe is contract C-PIPE-001: pipeline stages compute what the model
// that is not cut computes, by the schedule of the plan.
package pipe

import (
	_ "embed" // explain.txt

	"github.com/lockstep-ml/lockstep/contracts/bounded"
	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/plan"
)

// subject is plans with stages.
var subject = compare.Subject{About: func(p plan.Plan) bool { return p.PP > 1 }, Lacks: "has one stage"}

// Contract is C-PIPE-001.
func Contract() *contract.Contract {
	c := contract.Numbered("C-PIPE-001")
	return &contract.Contract{
		ID:        "C-PIPE-001",
		Title:     "Pipeline stages compute the unsplit model",
		Statement: "Every block is on one stage, stages hand on what their neighbours computed in the order of the plan's schedule, and the accumulated gradients are those of the model that is not cut.",
		Doc:       doc,
		Clauses: []*contract.Clause{
			c("1", "Every block is owned by exactly one stage, the embedding by the first, final norm and head by the last; no two buffers share memory.",
				"phase, digest (weight) before the first step, span", contract.Integer, subject.With(owned)).In(contract.Forward),
			c("2", "At every boundary sender and receiver have the shape of the micro-batch, also of a shorter one.",
				"message", contract.Integer, subject.With(shaped)).In(contract.Forward),
			c("3", "What a stage receives is what its neighbour sent: same micro-batch, same bits, forward and backward.",
				"message, comm (pp)", contract.Exact, subject.With(delivered)).In(contract.Forward),
			bounded.OrBound(c("4", "Accumulated gradients, and what the optimizer makes of them, are those of the unsplit model.",
				"digest (grad.worker, grad, weight, moments), scalar of the test and the control run", contract.Exact, subject.WithPart(accumulated)).In(contract.Reduction)),
			c("5", "Stages follow the plan's schedule: it respects all dependencies, cannot deadlock without buffers, and holds no more activations than its bound.",
				"phase, message, live, memory", contract.Integer, withPlan(scheduled)).In(contract.Forward),
			c("6", "The idle share of the schedule that was run, in unit slots with equal stages, is (P-1)/(M+P-1), interleaved (P-1)/(V*M+P-1).",
				"phase, message", contract.Integer, withPlan(idle)).In(contract.Backward),
			bounded.OrBound(c("7", "Tied embeddings: first and last stage exchange one gradient and one weight a step, the summed gradient is the unsplit model's, and the copies stay equal.",
				"comm (pp), digest (weight, grad) of the test and the control run", contract.Exact, subject.WithPart(tied)).In(contract.Reduction)),
		},
		Control: compare.Unsplit,
		Judges:  subject.About,
	}
}

//go:embed explain.txt
var doc string
