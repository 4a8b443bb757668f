package suite_test

import (
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/contracttest"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	tp "github.com/lockstep-ml/lockstep/contracts/tp/suite"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/internal/race"
)

func TestOnRuns(t *testing.T) {
	var r contracttest.Runner
	c := tp.Suite()
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
	mutants := []string{"bit-flipped-in-columns", "row-output-not-reduced", "attention-gradient-not-reduced", "norm-gradient-multiplied", "all-reduce-too-many"}
	for _, p := range race.Some(3, []string{"dp=3,tp=2", "dp=3,tp=2,comm=ring"}) {
		r.OnPlan(t, tp.Suite(), p, mutants...)
	}
	for _, p := range race.Some(3, []string{"dp=3,tp=4,vocab=parallel", "dp=4,tp=2,zero=2,comm=star", "dp=3,tp=2,pp=2,zero=3,vocab=parallel", "dp=2,tp=2,comm=ring"}) {
		r.OnPlan(t, tp.Suite(), p)
	}
}

// TestOrderOfItsOwn: sums of more than two tensor-parallel ranks in another order
// than the tree's leave nothing to compare; that is said, and what needs no
// comparison is judged.
func TestOrderOfItsOwn(t *testing.T) {
	var r contracttest.Runner
	c, o := tp.Suite(), contracttest.Options()
	o.Plans = []string{"tp=4,comm=star"}
	e, err := r.Evidence(t, c.Cases(o)[0])
	if err != nil {
		t.Fatal(err)
	}
	contracttest.Want(t, c, e, contract.Inconclusive, "1", "2", "3", "4", "5", "6")
	contracttest.Want(t, c, e, contract.Held, "7")
}

// TestMissingEvidence takes evidence away: no clause that reads it may hold, and
// none may be violated by what is not there.
func TestMissingEvidence(t *testing.T) {
	var r contracttest.Runner
	c := tp.Suite()
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
		results := contracttest.Judge(c.Contract, []contract.Evidence{contracttest.Without(e, contract.Test, x.drop)})
		for _, n := range x.clauses {
			if v := results[n-1].Verdict(); v != contract.Inconclusive {
				t.Errorf("without %s clause %d is %s", x.name, n, v)
				contracttest.Log(t, results[n-1])
			}
		}
	}
	for _, res := range contracttest.Judge(c.Contract, []contract.Evidence{contracttest.WithoutRank(e, contract.Test, 2)}) {
		if v := res.Verdict(); v != contract.Inconclusive {
			t.Errorf("without rank 2 %s is %s", res.Clause.ID, v)
			contracttest.Log(t, res)
		}
	}
}

// TestTampered changes one thing in a sound history: the clause that reads it
// must see it.
func TestTampered(t *testing.T) {
	var r contracttest.Runner
	c := tp.Suite()
	e, err := r.Evidence(t, c.Cases(contracttest.Options())[4]) // odd on tp=4
	if err != nil {
		t.Fatal(err)
	}
	group := func(name names.Axis) func(trace.Event) bool {
		return func(e trace.Event) bool {
			return e.Kind == trace.KindComm && e.Group == name && e.Unit == "block.2"
		}
	}
	digest := func(what, tensor string) func(trace.Event) bool {
		return func(e trace.Event) bool { return e.Kind == trace.KindDigest && e.What == what && e.Tensor == tensor }
	}
	scalar := func(what string) func(trace.Event) bool {
		return func(e trace.Event) bool { return e.Kind == trace.KindScalar && e.What == what }
	}
	const k, norm = "model.layers.1.self_attn.k_proj.weight", "model.layers.3.post_attention_layernorm.weight"
	for _, x := range []struct {
		name   string
		which  func(trace.Event) bool
		change func(*trace.Event)
		clause string
	}{
		{"columns", func(e trace.Event) bool { return e.Kind == trace.KindTap && e.Tensor == "gate" }, func(e *trace.Event) { e.Lo-- }, "1"},
		{"loss", scalar(trace.Loss), func(e *trace.Event) { e.Bits++ }, "2"},
		{"moment", digest(trace.MomentV, k), contracttest.Flip, "3"},
		{"elements of a slice", digest(trace.Weight, k), func(e *trace.Event) { e.Count-- }, "6"},
		{"gradient of a slice", digest(trace.Grad, k), contracttest.Flip, "4"},
		{"weight of a replica", digest(trace.Weight, norm), contracttest.Flip, "5"},
		{"norm", scalar(trace.Norm), func(e *trace.Event) { e.Value++ }, "5"},
		{"elements of a sum of copies", group(names.KV), func(e *trace.Event) { e.Count++ }, "6"},
		{"ranks of a sum of copies", group(names.KV), func(e *trace.Event) { e.Ranks = []int{0, 1, 2, 3} }, "6"},
		{"elements of a sum", group(names.TP), func(e *trace.Event) { e.Count++ }, "7"},
		{"bytes of a sum", group(names.TP), func(e *trace.Event) { e.Bytes++ }, "7"},
		{"ranks of a sum", group(names.TP), func(e *trace.Event) { e.Ranks = e.Ranks[:2] }, "7"},
	} {
		t.Run(x.name, func(t *testing.T) {
			contracttest.Want(t, c, contracttest.Tamper(e, 2, x.which, x.change), contract.Violated, x.clause)
		})
	}
}
