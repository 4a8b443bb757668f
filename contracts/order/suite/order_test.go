package suite_test

import (
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/contracttest"
	"github.com/lockstep-ml/lockstep/contracts/fault"
	order "github.com/lockstep-ml/lockstep/contracts/order/suite"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/kernels"
)

// breaking is a backend with a kernel that panics.
type breaking struct{ kernels.Backend }

func (breaking) SwiGLU(_, _, _ kernels.Tensor) { panic("no memory of its own") }

// A run that breaks down in code under test does so under every schedule and under
// none: no order of ranks is to blame, and no clause is violated.
func TestBreakdownsAreOfNoSchedule(t *testing.T) {
	var r contracttest.Runner
	c := order.Suite()
	cs, ok := c.Find(contracttest.Options(), "nano dp=4")
	if !ok {
		t.Fatal("no such case")
	}
	for role := range cs.Runs {
		fault.Into(role, fault.OnBackend(1, func(be kernels.Backend) kernels.Backend { return breaking{be} }))(&cs)
	}
	e, err := r.Evidence(t, cs)
	if err == nil || !strings.Contains(err.Error(), "no memory of its own") {
		t.Fatalf("the runs end in %v", err)
	}
	for n, res := range contracttest.Verdicts(c, e) {
		if res.Verdict() != contract.Inconclusive {
			t.Errorf("clause %s is %s", n, res.Verdict())
			contracttest.Log(t, res)
		}
	}
}

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
