// Package suite runs contract C-NORM-001.
package suite

import (
	"github.com/lockstep-ml/lockstep/contracts/norm"
	"github.com/lockstep-ml/lockstep/contracts/suite"
)

// Suite is the contract with its cases and mutants.
func Suite() *suite.Suite {
	return &suite.Suite{Contract: norm.Contract(), Cases: list, Mutants: mutants()}
}
