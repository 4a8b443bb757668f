// Package suite runs contract C-PIPE-001.
package suite

import (
	"github.com/lockstep-ml/lockstep/contracts/pipe"
	"github.com/lockstep-ml/lockstep/contracts/suite"
)

// Suite is the contract with its cases and mutants.
func Suite() *suite.Suite {
	return &suite.Suite{Contract: pipe.Contract(), Cases: list, Mutants: mutants()}
}
