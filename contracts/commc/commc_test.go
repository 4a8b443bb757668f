package commc_test

import (
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/commc"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/contracttest"
)

func TestOnRuns(t *testing.T) {
	var r contracttest.Runner
	c := commc.Contract()
	for _, cs := range contracttest.Cases(c) {
		t.Run(cs.Name, func(t *testing.T) {
			r.Held(t, c, []contract.Case{cs})
		})
	}
	r.Mutants(t, c)
}
