package contracts_test

import (
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/contracttest"
	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/internal/race"
)

// An update that does nothing, on all ranks and in all runs of a case, and one
// that leaves out norm weights and biases: what two runs have in common because
// nothing moves is not held. Clauses that read no training run, or no state, are
// not asked.
func TestNothingMovedIsNotHeld(t *testing.T) {
	all := fault.OnUpdate(func(*fault.Update) {})
	vectors := fault.OnUpdate(func(u *fault.Update) {
		if u.Decays {
			u.Do()
		}
	})
	for _, x := range []struct {
		contract, on string
		still        fault.Fault
		clauses      string
	}{
		{"C-DDP-001", "nano dp=4", all, "1 2 4 6"},
		{"C-DDP-001", "nano dp=4", vectors, "1 2 4 6"},
		{"C-ZERO-001", "odd dp=4,zero=3", all, "2 3 4"},
		{"C-TP-001", "odd dp=1,tp=2", all, "3 4 5"},
		{"C-PIPE-001", "odd dp=1,pp=3", all, "4 7"},
		{"C-NORM-001", "odd dp=4 step 1 skipped", all, "3 4 6"},
		{"C-CKPT-001", "nano dp=4,zero=3 then dp=2,pp=2", all, "1 2"},
		{"C-DET-001", "nano dp=4 again", all, "1"},
	} {
		if race.Enabled && x.contract != "C-DDP-001" {
			continue
		}
		t.Run(x.contract+" "+x.on, func(t *testing.T) {
			c, err := contracts.Find(x.contract)
			if err != nil {
				t.Fatal(err)
			}
			on, ok := c.Find(contracttest.Options(), x.on)
			if !ok {
				t.Fatalf("no such case; there are %v", names(c))
			}
			for role := range on.Runs {
				fault.Into(role, x.still)(&on)
			}
			var r contracttest.Runner
			e, err := r.Evidence(t, on)
			if err != nil {
				t.Fatal(err)
			}
			got := contracttest.Verdicts(c, e)
			for _, n := range strings.Fields(x.clauses) {
				if res, ok := got[n]; !ok || res.Verdict() == contract.Held {
					t.Errorf("%s.%s is held: saw %d of %d", x.contract, n, res.Saw, res.Expected)
				}
			}
		})
	}
}

func names(c *suite.Suite) []string {
	var out []string
	for _, cs := range c.Cases(contracttest.Options()) {
		out = append(out, cs.Name)
	}
	return out
}
