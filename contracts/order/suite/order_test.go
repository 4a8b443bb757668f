package suite_test

import (
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contracttest"
	order "github.com/lockstep-ml/lockstep/contracts/order/suite"
	"github.com/lockstep-ml/lockstep/contracts/suite"
)

func TestOnRuns(t *testing.T) {
	var r contracttest.Runner
	c := order.Suite()
	for _, cs := range contracttest.Cases(c) {
		t.Run(cs.Name, func(t *testing.T) {
			r.Held(t, c, []suite.Case{cs})
		})
	}
	r.Mutants(t, c)
}
