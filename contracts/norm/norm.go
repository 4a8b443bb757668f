// Package norm is contract C-NORM-001: one gradient norm, one clipping
// coefficient and one decision to step, on all ranks.
package norm

import (
	_ "embed" // explain.txt

	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
)

// Contract is C-NORM-001.
func Contract() *contract.Contract {
	c := func(n, says, reads string, phase contract.Phase, check func(*contract.Pass)) *contract.Clause {
		return &contract.Clause{ID: "C-NORM-001." + n, Says: says, Class: contract.Exact, Reads: reads, Phase: phase, Check: check}
	}
	return &contract.Contract{
		ID:        "C-NORM-001",
		Title:     "One norm, one coefficient, one decision",
		Statement: "The gradient is clipped by the exact norm of the full logical gradient, with one coefficient everywhere; a norm that is not finite moves no rank, and the next step goes on as if the skipped one had not been.",
		Doc:       doc,
		Clauses: []*contract.Clause{
			c("1", "All ranks have one norm and one clipping coefficient, clip/(norm+1e-6) where that is below 1, and apply it.",
				"scalar (norm, coef); digest (grad, moments) of the first step: norms", contract.Norm, evidence.With(agreed)),
			c("2", "The norm is the root of the exact sum of squares of the reduced gradient, each logical parameter once.",
				"scalar (norm); digest (grad) with elements, of the test or the control run", contract.Norm, evidence.WithBoth(contract.Control, measured)),
			c("3", "Where the reduced gradient is not finite no rank steps: weights, moments and step counters stay; elsewhere every rank steps.",
				"digest (grad, weight, moments), scalar (norm, counter), skip", contract.Update, evidence.With(decided)),
			c("4", "After a skipped step the run goes on: counter and learning rate count optimizer steps, and every step is the optimizer's, bit for bit the one of a single worker that skipped the same step.",
				"scalar (counter, lr), digest (weight, moments); elements of the control run", contract.Update, resumed),
			c("5", "The first producer of a value that is not finite is named: the logical worker and the parameter that a single worker names.",
				"digest (grad.worker) of the test and the control run", contract.Backward, evidence.WithBoth(contract.Control, named)),
			{ID: "C-NORM-001.6", Class: contract.Bound, Phase: contract.Update, Check: evidence.WithBoth(contract.Control, applied),
				Says:  "What every update did is what the recorded coefficient and learning rate do, and that rate is the schedule's.",
				Reads: "scalar (lr, coef); elements (grad, weight, moments) of the control run",
				Derivation: "the update in float64 (contracts/independent) with the recorded scalars; the bound adds up the roundings of the float32 update, " +
					"element by element, so that another coefficient, rate, decay or correction lies many bounds away"},
		},
		Judges:   compare.Canonical,
		Elements: true,
	}
}

//go:embed explain.txt
var doc string
