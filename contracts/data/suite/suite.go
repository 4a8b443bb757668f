// Package suite runs contract C-DATA-001.
package suite

import (
	"github.com/lockstep-ml/lockstep/contracts/data"
	"github.com/lockstep-ml/lockstep/contracts/suite"
)

// Suite is the contract with its cases and mutants.
func Suite() *suite.Suite {
	return &suite.Suite{Contract: data.Contract(), Cases: list, Mutants: mutants()}
}
