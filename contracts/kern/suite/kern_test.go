package suite_test

import (
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contracttest"
	kern "github.com/lockstep-ml/lockstep/contracts/kern/suite"
	"github.com/lockstep-ml/lockstep/contracts/suite"
)

func TestOnRuns(t *testing.T) {
	var r contracttest.Runner
	c := kern.Suite()
	for _, cs := range contracttest.Cases(c) {
		t.Run(cs.Name, func(t *testing.T) {
			r.Held(t, c, []suite.Case{cs})
		})
	}
	r.Mutants(t, c)
}
