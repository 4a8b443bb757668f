// Package det is contract C-DET-001: training gives the same bits every time
// and everywhere.
package det

import (
	_ "embed" // explain.txt

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
)

// Contract is C-DET-001.
func Contract() *contract.Contract {
	c := func(n, says, reads string, check func(*contract.Pass)) *contract.Clause {
		return &contract.Clause{ID: "C-DET-001." + n, Says: says, Class: contract.Exact, Reads: reads, Check: check}
	}
	return &contract.Contract{
		ID:        "C-DET-001",
		Title:     "Training gives the same bits everywhere",
		Statement: "Two runs give the same bits, another seed gives others, and the fingerprint is the golden one on every backend, instruction set, thread count and plan.",
		Doc:       doc,
		Again:     "C-DET-001.1",
		Clauses: []*contract.Clause{
			c("1", "A run gives the same bits again.",
				"digest, changed, scalar of the test run and of the same run again", evidence.WithBoth(contract.Again, same)),
			c("2", "Another seed gives other weights.",
				"digest (weight) of the test run and of a run with another seed", evidence.WithBoth(contract.Other, other)),
			c("3", "The fingerprint of every step is the golden one.",
				"digest (weight, moments), scalar (loss, coef); golden/fingerprints", evidence.With(fingerprinted)),
			c("4", "Plans and thread counts do not change the fingerprint.",
				"digest (weight, moments), scalar (loss) of runs on several plans and with one thread", evidence.With(invariant)),
			c("5", "The learning rate of every optimizer step is the recorded one, through warm-up and cosine to beyond the horizon.",
				"scalar (lr); golden/schedules", evidence.With(scheduled)),
		},
	}
}

//go:embed explain.txt
var doc string
