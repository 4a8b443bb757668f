// Package suite runs contract C-CKPT-001.
package suite

import (
	"github.com/lockstep-ml/lockstep/contracts/ckpt"
	"github.com/lockstep-ml/lockstep/contracts/suite"
)

// Suite is the contract with its cases and mutants.
func Suite() *suite.Suite {
	return &suite.Suite{Contract: ckpt.Contract(), Cases: list, Mutants: mutants()}
}
