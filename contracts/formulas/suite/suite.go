// Package suite runs contract C-MODEL-001.
package suite

import (
	"github.com/lockstep-ml/lockstep/contracts/formulas"
	"github.com/lockstep-ml/lockstep/contracts/suite"
)

// Suite is the contract with its cases and mutants.
func Suite() *suite.Suite {
	return &suite.Suite{Contract: formulas.Contract(), Cases: list, Mutants: mutants(), Ignores: []suite.Option{suite.PlanOption}}
}
