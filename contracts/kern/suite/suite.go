// Package suite runs contract C-KERN-001.
package suite

import (
	"github.com/lockstep-ml/lockstep/contracts/kern"
	"github.com/lockstep-ml/lockstep/contracts/suite"
)

// Suite is the contract with its cases and mutants.
func Suite() *suite.Suite {
	return &suite.Suite{Contract: kern.Contract(), Cases: list, Mutants: mutants(), Ignores: suite.Drilled()}
}
