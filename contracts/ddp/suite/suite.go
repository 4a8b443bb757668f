// Package suite runs contract C-DDP-001.
package suite

import (
	"github.com/lockstep-ml/lockstep/contracts/ddp"
	"github.com/lockstep-ml/lockstep/contracts/suite"
)

// Suite is the contract with its cases and mutants.
func Suite() *suite.Suite {
	return &suite.Suite{Contract: ddp.Contract(), Cases: list, Mutants: mutants()}
}
