package ddp_test

import (
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/contracttest"
	"github.com/lockstep-ml/lockstep/contracts/ddp"
)

func TestOnRuns(t *testing.T) {
	var r contracttest.Runner
	c := ddp.Contract()
	for _, cs := range contracttest.Cases(c) {
		t.Run(cs.Name, func(t *testing.T) {
			r.Held(t, c, []contract.Case{cs})
		})
	}
	r.Mutants(t, c)
}
