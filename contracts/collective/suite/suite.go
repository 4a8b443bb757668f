// Package suite runs contract C-COMM-001.
package suite

import (
	"github.com/lockstep-ml/lockstep/contracts/collective"
	"github.com/lockstep-ml/lockstep/contracts/suite"
)

// Suite is the contract with its cases and mutants.
func Suite() *suite.Suite {
	return &suite.Suite{Contract: collective.Contract(), Cases: list, Mutants: mutants()}
}
