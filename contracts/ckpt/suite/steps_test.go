package suite_test

import (
	"fmt"
	"strings"
	"testing"

	ckpt "github.com/lockstep-ml/lockstep/contracts/ckpt/suite"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/contracttest"
	"github.com/lockstep-ml/lockstep/contracts/suite"
)

// However few steps are asked for, a step follows the last that a case stores: one for
// each plan between the first and the last. More are taken as asked.
func TestStepsThatAreAskedFor(t *testing.T) {
	for steps := 1; steps <= 20; steps++ {
		for _, level := range []int{1, 2, 3} {
			for _, plans := range [][]string{nil, {"dp=2,zero=3"}} {
				o := contracttest.Options()
				o.Steps, o.Level, o.Plans = steps, level, plans
				for _, cs := range ckpt.Suite().Cases(o) {
					r := cs.Runs[contract.Test]
					if cs.Clauses[0] != "C-CKPT-001.1" {
						continue
					}
					stored := 1 + strings.Count(cs.Name, suite.Then)
					if r.Config.Steps-r.First <= stored || steps > stored && r.First == 0 && r.Config.Steps != steps {
						t.Errorf("--steps %d at level %d: %s takes %d steps from %d on, %d of them stored", steps, level, cs.Name, r.Config.Steps, r.First, stored)
					}
					if c := cs.Runs[contract.Control].Config; c.Steps != r.Config.Steps {
						t.Errorf("--steps %d: %s takes %d steps, its control %d", steps, cs.Name, r.Config.Steps, c.Steps)
					}
				}
			}
		}
	}
}

// All cases hold on as few steps as may be asked for.
func TestFewStepsHold(t *testing.T) {
	for steps := 1; steps <= 3; steps++ {
		t.Run(fmt.Sprint(steps), func(t *testing.T) {
			var r contracttest.Runner
			o := contracttest.Options()
			o.Steps = steps
			r.Held(t, ckpt.Suite(), ckpt.Suite().Cases(o))
		})
	}
}
