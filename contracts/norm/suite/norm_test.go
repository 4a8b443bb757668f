package suite_test

import (
	"testing"

	"github.com/lockstep-ml/lockstep/contracts"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/contracttest"
	norm "github.com/lockstep-ml/lockstep/contracts/norm/suite"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// The cases hold, mutants are caught, and what is taken away from the evidence
// of a case leaves clauses without a verdict. Runs are shared.
func TestOnRuns(t *testing.T) {
	var r contracttest.Runner
	c := norm.Suite()
	all := c.Cases(contracttest.Options())
	for _, cs := range contracttest.Cases(c) {
		t.Run(cs.Name, func(t *testing.T) {
			r.Held(t, c, []suite.Case{cs})
		})
	}
	scalar := func(what string) func(trace.Event) bool {
		return func(e trace.Event) bool { return e.Kind == trace.KindScalar && e.What == what && e.Rank == e.Step%2 }
	}
	digest := func(what string) func(trace.Event) bool {
		return func(e trace.Event) bool { return e.Kind == trace.KindDigest && e.What == what && e.Step == 1 }
	}
	for _, x := range []struct {
		name    string
		lost    func(trace.Event) bool
		clauses []string
	}{
		{"norms", scalar(trace.Norm), []string{"1", "2", "3"}},
		{"coefficients", scalar(trace.Coef), []string{"1"}},
		{"counters", scalar(trace.Counter), []string{"3", "4"}},
		{"learning rates", scalar(trace.LR), []string{"4"}},
		{"gradients of the skipped step", digest(trace.Grad), []string{"2", "3", "4"}},
		{"weights after the skipped step", digest(trace.Weight), []string{"3", "4"}},
		{"moments after the skipped step", digest(trace.MomentV), []string{"3", "4"}},
		{"workers' gradients", digest(trace.WorkerGrad), []string{"5"}},
		{"the last step", func(e trace.Event) bool { return e.Step == 2 }, []string{"1", "2", "3", "4"}},
	} {
		t.Run("without "+x.name, func(t *testing.T) {
			e, err := r.Evidence(t, all[2])
			if err != nil {
				t.Fatal(err)
			}
			less := contracttest.Without(e, contract.Test, x.lost)
			contracttest.Want(t, c, less, contract.Inconclusive, x.clauses...)
		})
	}
	r.Mutants(t, c)
}

func TestComplete(t *testing.T) {
	if err := contracts.Validate([]*suite.Suite{norm.Suite()}); err != nil {
		t.Error(err)
	}
}
