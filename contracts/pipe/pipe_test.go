package pipe_test

import (
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/contracttest"
	"github.com/lockstep-ml/lockstep/contracts/pipe"
	"github.com/lockstep-ml/lockstep/core/trace"
)

func TestOnRuns(t *testing.T) {
	var r contracttest.Runner
	c := pipe.Contract()
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
	c := pipe.Contract()
	e, err := r.Evidence(t, c.Cases(contracttest.Options())[4]) // odd on three stages
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
		{"phases", kind(trace.KindPhase, 1), []int{1, 5, 6}},
		{"messages", kind(trace.KindMessage, 0), []int{2, 3, 5, 6}},
		{"digests", kind(trace.KindDigest, 2), []int{4, 7}},
		{"scalars", kind(trace.KindScalar, 2), []int{4, 7}},
		{"live", kind(trace.KindLive, 2), []int{5}},
		{"collectives", kind(trace.KindComm, 0), []int{7}},
	} {
		results := contract.Judge(c, []contract.Evidence{contracttest.Without(e, contract.Test, x.drop)})
		for _, n := range x.clauses {
			if v := results[n-1].Verdict(); v != contract.Inconclusive {
				t.Errorf("without %s clause %d is %s", x.name, n, v)
				contracttest.Log(t, results[n-1])
			}
		}
	}
	for _, res := range contract.Judge(c, []contract.Evidence{contracttest.WithoutRank(e, contract.Test, 1)}) {
		if v := res.Verdict(); v != contract.Inconclusive {
			t.Errorf("without rank 1 %s is %s", res.Clause.ID, v)
			contracttest.Log(t, res)
		}
	}
}
