// Package suite runs contract C-ORDER-001.
package suite

import (
	"github.com/lockstep-ml/lockstep/contracts/order"
	"github.com/lockstep-ml/lockstep/contracts/suite"
)

// Suite is the contract with its cases and mutants.
func Suite() *suite.Suite {
	return &suite.Suite{Contract: order.Contract(), Cases: list, Mutants: mutants(), OneProcess: true}
}
