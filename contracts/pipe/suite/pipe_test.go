package suite_test

import (
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/contracttest"
	pipe "github.com/lockstep-ml/lockstep/contracts/pipe/suite"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/internal/race"
)

func TestOnRuns(t *testing.T) {
	var r contracttest.Runner
	c := pipe.Suite()
	for _, cs := range contracttest.Cases(c) {
		t.Run(cs.Name, func(t *testing.T) {
			r.Held(t, c, []suite.Case{cs})
		})
	}
	r.Mutants(t, c)
}

// TestOtherOrders: a plan that does not promise the single worker's bits is held
// against data parallelism of its size, and where its sums have an order of their
// own, against the bound.
func TestOtherOrders(t *testing.T) {
	var r contracttest.Runner
	for _, p := range race.Some(4, []string{"dp=3,pp=2", "dp=3,pp=3,comm=star", "dp=3,pp=2,zero=1,comm=ring", "dp=3,pp=2,zero=3,comm=ring"}) {
		r.OnPlan(t, pipe.Suite(), p, "micro-batch-gradient-lost", "tied-gradient-kept")
	}
	r.OnPlan(t, pipe.Suite(), "dp=3,tp=2,pp=2,comm=ring")
}

// TestScalarsOfOtherOrders: the learning rate and the count of steps do not depend
// on the order of sums, so they are the control's under every plan.
func TestScalarsOfOtherOrders(t *testing.T) {
	var r contracttest.Runner
	c, o := pipe.Suite(), contracttest.Options()
	o.Plans = []string{"dp=3,pp=2,zero=1,comm=ring"}
	e, err := r.Evidence(t, c.Cases(o)[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{trace.LR, trace.Counter} {
		last := func(e trace.Event) bool { return e.Kind == trace.KindScalar && e.What == what && e.Step == 1 }
		contracttest.Want(t, c, contracttest.Tamper(e, 2, last, func(e *trace.Event) { e.Value++ }), contract.Violated, "4")
	}
}

// TestMissingEvidence takes evidence away: no clause that reads it may hold, and
// none may be violated by what is not there.
func TestMissingEvidence(t *testing.T) {
	var r contracttest.Runner
	c := pipe.Suite()
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
		{"memory", kind(trace.KindMemory, 2), []int{5}},
		{"collectives", kind(trace.KindComm, 0), []int{7}},
	} {
		results := contracttest.Judge(c.Contract, []contract.Evidence{contracttest.Without(e, contract.Test, x.drop)})
		for _, n := range x.clauses {
			if v := results[n-1].Verdict(); v != contract.Inconclusive {
				t.Errorf("without %s clause %d is %s", x.name, n, v)
				contracttest.Log(t, results[n-1])
			}
		}
	}
	for _, res := range contracttest.Judge(c.Contract, []contract.Evidence{contracttest.WithoutRank(e, contract.Test, 1)}) {
		if v := res.Verdict(); v != contract.Inconclusive {
			t.Errorf("without rank 1 %s is %s", res.Clause.ID, v)
			contracttest.Log(t, res)
		}
	}
}

// TestTampered changes one thing in a sound history: the clause that reads it
// must see it.
func TestTampered(t *testing.T) {
	var r contracttest.Runner
	c := pipe.Suite()
	e, err := r.Evidence(t, c.Cases(contracttest.Options())[4]) // odd on three stages
	if err != nil {
		t.Fatal(err)
	}
	kind := func(k trace.Kind) func(trace.Event) bool {
		return func(e trace.Event) bool { return e.Kind == k }
	}
	memory := func(what string) func(trace.Event) bool {
		return func(e trace.Event) bool { return e.Kind == trace.KindMemory && e.What == what }
	}
	unit := func(name string) func(trace.Event) bool {
		return func(e trace.Event) bool { return e.Kind == trace.KindComm && e.Unit == name }
	}
	digest := func(what, tensor string, step int) func(trace.Event) bool {
		return func(e trace.Event) bool {
			return e.Kind == trace.KindDigest && e.What == what && e.Tensor == tensor && e.Step == step
		}
	}
	const norm = "model.norm.weight"
	for _, x := range []struct {
		name   string
		which  func(trace.Event) bool
		change func(*trace.Event)
		clause string
	}{
		{"unit", kind(trace.KindPhase), func(e *trace.Event) { e.Unit = "block.9" }, "1"},
		{"owner of weights", digest(trace.Weight, norm, -1), func(e *trace.Event) { e.Tensor = "model.layers.0.mlp.up_proj.weight" }, "1"},
		{"rows of a message", kind(trace.KindMessage), func(e *trace.Event) { e.Lo++ }, "2"},
		{"elements of a message", kind(trace.KindMessage), func(e *trace.Event) { e.Count-- }, "2"},
		{"message", kind(trace.KindMessage), contracttest.Flip, "3"},
		{"moment", digest(trace.MomentM, norm, 1), contracttest.Flip, "4"},
		{"activations held", kind(trace.KindLive), func(e *trace.Event) { e.Count = 2 }, "5"},
		{"activations never reused", memory(names.MemActivations), func(e *trace.Event) { e.Bytes *= 2 }, "5"},
		{"micro-batch of a pass", kind(trace.KindPhase), func(e *trace.Event) { e.Micro = 3 }, "5"},
		{"peer of a message", kind(trace.KindMessage), func(e *trace.Event) { e.Peer = 0 }, "5"},
		{"elements of the tied gradient", unit("tied gradient"), func(e *trace.Event) { e.Count-- }, "7"},
		{"tied weight missing", unit("tied weight"), func(e *trace.Event) { e.Unit = "" }, "7"},
		{"copy of the embedding", digest(trace.Weight, "lm_head.weight", 0), contracttest.Flip, "7"},
		{"gradient of the head", digest(trace.WorkerGrad, "lm_head.weight", 1), contracttest.Flip, "7"},
	} {
		t.Run(x.name, func(t *testing.T) {
			contracttest.Want(t, c, contracttest.Tamper(e, 2, x.which, x.change), contract.Violated, x.clause)
		})
	}
}
