package suite_test

import (
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/contracts/contracttest"
	formulas "github.com/lockstep-ml/lockstep/contracts/formulas/suite"
	"github.com/lockstep-ml/lockstep/contracts/suite"
)

func TestOnRuns(t *testing.T) {
	var r contracttest.Runner
	c := formulas.Suite()
	for _, cs := range contracttest.Cases(c) {
		t.Run(cs.Name, func(t *testing.T) {
			t0 := time.Now()
			for _, res := range r.Held(t, c, []suite.Case{cs}) {
				t.Logf("%s saw %d of %d, ratio %.3g", res.Clause.ID, res.Saw, res.Expected, res.MaxRatio)
			}
			t.Log(time.Since(t0))
		})
	}
	r.Mutants(t, c)
}
