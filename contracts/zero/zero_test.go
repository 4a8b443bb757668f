package zero_test

import (
	"testing"

	"github.com/lockstep-ml/lockstep/contracts"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/contracttest"
	"github.com/lockstep-ml/lockstep/contracts/zero"
)

func TestOnRuns(t *testing.T) {
	var r contracttest.Runner
	c := zero.Contract()
	for _, cs := range c.Cases(contracttest.Options()) {
		t.Run(cs.Name, func(t *testing.T) {
			r.Held(t, c, []contract.Case{cs})
		})
	}
	r.Mutants(t, c)
}

func TestComplete(t *testing.T) {
	if err := contracts.Validate([]*contract.Contract{zero.Contract()}); err != nil {
		t.Error(err)
	}
}
