// Package suite runs contract C-ZERO-001.
package suite

import (
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/contracts/zero"
)

// Suite is the contract with its cases and mutants.
func Suite() *suite.Suite {
	return &suite.Suite{Contract: zero.Contract(), Cases: list, Mutants: mutants()}
}
