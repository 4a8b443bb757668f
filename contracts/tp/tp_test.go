package tp_test

import (
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/contracttest"
	"github.com/lockstep-ml/lockstep/contracts/tp"
	"github.com/lockstep-ml/lockstep/core/trace"
)

func TestOnRuns(t *testing.T) {
	var r contracttest.Runner
	c := tp.Contract()
	for _, cs := range c.Cases(contracttest.Options()) {
		t.Run(cs.Name, func(t *testing.T) {
			r.Held(t, c, []contract.Case{cs})
		})
	}
	r.Mutants(t, c)
}

// TestMissingEvidence takes evidence away: no clause that reads it may hold, and
// none may be violated by what is not there.
func TestMissingEvidence(t *testing.T) {
	var r contracttest.Runner
	c := tp.Contract()
	cases := c.Cases(contracttest.Options())
	e, err := r.Evidence(t, cases[4]) // odd on tp=4
	if err != nil {
		t.Fatal(err)
	}
	kind := func(k trace.Kind, rank int) func(trace.Event) bool {
		return func(e trace.Event) bool { return e.Kind == k && e.Rank == rank && e.Step == 1 }
	}
	for _, x := range []struct {
		name    string
		drop    func(trace.Event) bool
		clauses []int
	}{
		{"taps", kind(trace.KindTap, 1), []int{1, 2, 4, 6}},
		{"digests", kind(trace.KindDigest, 3), []int{3, 4, 5, 6}},
		{"phases", kind(trace.KindPhase, 0), []int{7}},
		{"collectives", kind(trace.KindComm, 1), []int{6, 7}},
		{"data", kind(trace.KindData, 2), []int{7}},
		{"scalars", kind(trace.KindScalar, 2), []int{2, 5}},
	} {
		results := contract.Judge(c, []contract.Evidence{contracttest.Without(e, contract.Test, x.drop)})
		for _, n := range x.clauses {
			if v := results[n-1].Verdict(); v != contract.Inconclusive {
				t.Errorf("without %s clause %d is %s", x.name, n, v)
				contracttest.Log(t, results[n-1])
			}
		}
	}
	for _, res := range contract.Judge(c, []contract.Evidence{contracttest.WithoutRank(e, contract.Test, 2)}) {
		if v := res.Verdict(); v != contract.Inconclusive {
			t.Errorf("without rank 2 %s is %s", res.Clause.ID, v)
			contracttest.Log(t, res)
		}
	}
}
