// Package suite runs contract C-TP-001.
package suite

import (
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/contracts/tp"
)

// Suite is the contract with its cases and mutants.
func Suite() *suite.Suite {
	return &suite.Suite{Contract: tp.Contract(), Cases: list, Mutants: mutants()}
}
