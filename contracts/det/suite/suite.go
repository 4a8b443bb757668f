// Package suite runs contract C-DET-001.
package suite

import (
	"github.com/lockstep-ml/lockstep/contracts/det"
	"github.com/lockstep-ml/lockstep/contracts/suite"
)

// Suite is the contract with its cases and mutants.
func Suite() *suite.Suite {
	return &suite.Suite{Contract: det.Contract(), Cases: list, Mutants: mutants()}
}
