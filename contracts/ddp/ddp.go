// Package ddp is contract C-DDP-001: data-parallel replicas stay identical, and
// identical to what one worker computes on the whole batch.
package ddp

import (
	_ "embed" // explain.txt

	"github.com/lockstep-ml/lockstep/contracts/bounded"
	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// subject is plans with data-parallel replicas.
var subject = compare.Subject{
	About: func(p plan.Plan) bool { return p.Dims().DP > 1 },
	Lacks: "has no data-parallel replicas",
}

// Contract is C-DDP-001.
func Contract() *contract.Contract {
	c := contract.Numbered("C-DDP-001")
	return &contract.Contract{
		ID:        "C-DDP-001",
		Title:     "Data-parallel replicas are identical",
		Statement: "After all-reduce and optimizer step all workers hold identical weights, the ones that a single worker gets from the same global batch.",
		Doc:       doc,
		Clauses: []*contract.Clause{
			c("1", "Replicas start with bit-equal weights and moments.",
				"digest (weight, moments) before the first step; in ZeRO stage 3 gather (use) of the first", contract.Exact, subject.With(initial)).In(contract.Initial),
			c("2", "After every step the weights, the moments and the step counters of all replicas are bit-equal, and no two buffers share memory.",
				"digest (weight, moments), scalar (counter), span, diff; in ZeRO stage 3 gather (use)", contract.Exact, subject.With(updated)).In(contract.Update),
			c("3", "Every logical worker's gradient enters exactly one reduction per unit and step, over exactly the ranks that replicate the unit, issued while the backward pass still runs.",
				"leaf, comm (dp: all-reduce, reduce-scatter), issue, phase", contract.Integer, subject.With(reduced)).In(contract.Reduction),
			bounded.OrBound(c("4", "The reduced gradient, the weights, the moments and the loss are those of a single worker on the same global batch.",
				"digest (grad.worker, grad, weight, moments), scalar of the test and the control run", contract.Exact, subject.WithPair(single)).In(contract.Reduction)),
			c("5", "All ranks issue the same sequence of collectives, those of the plan: operation, unit, size and order.",
				"comm", contract.Integer, subject.With(ordered)),
			bounded.OrBound(c("6", "Exactly those elements change in a step that change in the reference update, and over the run every element moves that has a reference update.",
				"changed, unmoved of the test and the control run, captured elements", contract.Exact, subject.WithPair(progressed)).In(contract.Update)),
			c("7", "No gradient, weight, moment or loss is NaN or infinite, and no step is skipped; otherwise the first producer is named.",
				"digest, scalar (loss), skip", contract.Integer, subject.With(finite)),
			c("8", "The data shards of the ranks are disjoint and cover the batch, and all ranks weigh the loss by the same number of valid tokens.",
				"data, tokens of the test and the control run", contract.Integer, subject.WithPair(covered)).In(contract.Data),
		},
		Judges: subject.About,
	}
}

//go:embed explain.txt
var doc string

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
	// What the update is made from comes before what it makes.
	c.Gradients(nil)
	c.Scalars(c.LastStage, trace.Loss)
	c.Scalars(nil, trace.Norm, trace.Coef, trace.LR)
	for step := c.Test.First - 1; step < c.Test.Steps; step++ { // what a run begins with, too
		c.State(step, nil)
	}
}
