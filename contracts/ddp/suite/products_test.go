package suite_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/contracttest"
	ddp "github.com/lockstep-ml/lockstep/contracts/ddp/suite"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/internal/race"
	"github.com/lockstep-ml/lockstep/kernels"
)

// short is a case of a fixture on short sequences: what the ranks exchange is the
// same.
func short(t *testing.T, config, text string) suite.Case {
	t.Helper()
	cfg, err := suite.Preset(config, contracttest.Options(), 2)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Model.SeqLen = 11
	p, err := plan.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	cfg = compare.On(cfg, p)
	return suite.Case{Name: suite.Name(cfg), Runs: map[contract.Role]suite.Run{
		contract.Test:    suite.Train(cfg, contracttest.Options()),
		contract.Control: suite.Train(compare.Single(cfg), contracttest.Options()),
	}}
}

// judged runs a case.
func judged(t *testing.T, r *contracttest.Runner, cs suite.Case) contract.Evidence {
	t.Helper()
	e, err := r.Evidence(t, cs)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestPlans: every clause holds on every kind of product, exact or bounded, and
// on every stage of ZeRO; and every clause finds something to judge on each.
func TestPlans(t *testing.T) {
	var r contracttest.Runner
	for config, plans := range map[string][]string{
		"nano": {
			"dp=8,zero=3,microbatches=2", "dp=4,zero=1,shard=balanced", "dp=4,tp=2,zero=2", "dp=2,tp=2,pp=2,zero=3", "dp=2,zero=3,shard=tensors",
			"dp=2,pp=2,schedule=interleaved,virtual=2", "dp=2,pp=2,zero=1,schedule=interleaved,virtual=2", "dp=4,pp=4", "dp=2,tp=4,vocab=parallel",
			"dp=3,tp=2,pp=2", "dp=3,zero=2", "dp=2,comm=ring,pp=2",
		},
		"odd": {
			"dp=2,tp=4", "dp=2,tp=2,pp=2,vocab=parallel", "dp=4,pp=3,zero=1", "dp=2,pp=2,zero=3,shard=tensors", "dp=4,zero=2,microbatches=3", "dp=3,tp=2,zero=3", "dp=5,pp=2,zero=1",
		},
	} {
		for _, p := range race.Some(4, plans) {
			t.Run(config+" "+p, func(t *testing.T) {
				t.Parallel()
				contracttest.Want(t, ddp.Suite(), judged(t, &r, short(t, config, p)), contract.Held, all...)
			})
		}
	}
}

// TestOneReplicaIsNoSubject: a plan that replicates nothing is neither judged nor
// passed.
func TestOneReplicaIsNoSubject(t *testing.T) {
	var r contracttest.Runner
	contracttest.Want(t, ddp.Suite(), judged(t, &r, short(t, "nano", "tp=2,pp=2")), contract.Inconclusive, all...)
	for text, want := range map[string]bool{"": false, "dp=1": false, "dp=2": true, "tp=2": false, "pp=4,zero=1": false, "dp=2,tp=2,pp=2": true, "dp=3,zero=3": true} {
		p, err := plan.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := ddp.Suite().Judges(p); got != want {
			t.Errorf("plan %q: about it is %v", text, got)
		}
	}
}

// TestLessEvidenceOfProducts: what one rank did not record makes the clauses that
// need it inconclusive, whoever else recorded the same.
func TestLessEvidenceOfProducts(t *testing.T) {
	var r contracttest.Runner
	c := ddp.Suite()
	of := func(rank int, match func(trace.Event) bool) func(trace.Event) bool {
		return func(e trace.Event) bool { return e.Rank == rank && match(e) }
	}
	last := func(k trace.Kind) func(trace.Event) bool {
		return func(e trace.Event) bool { return e.Kind == k && e.Step == 1 }
	}
	for _, x := range race.Some(6, []struct {
		config, plan, name string
		drop               func(trace.Event) bool
		clauses            string
	}{
		{"odd", "dp=2,tp=2,pp=2", "weights", of(5, what(trace.KindDigest, trace.Weight)), "1 2 4 7"},
		{"odd", "dp=2,tp=2,pp=2", "the head's copy", func(e trace.Event) bool { return e.Tensor == "lm_head.weight" && e.What == trace.Weight }, "1 2"},
		{"odd", "dp=2,tp=2,pp=2", "workers' gradients", of(6, what(trace.KindDigest, trace.WorkerGrad)), "4 7"},
		{"odd", "dp=2,tp=2,pp=2", "leaves", of(6, kind(trace.KindLeaf)), "3"},
		{"odd", "dp=2,tp=2,pp=2", "issues", of(3, kind(trace.KindIssue)), "3"},
		{"odd", "dp=2,tp=2,pp=2", "spans", of(7, kind(trace.KindSpan)), "2"},
		{"odd", "dp=2,tp=2,pp=2", "data", of(2, kind(trace.KindData)), "8"},
		{"odd", "dp=2,tp=2,pp=2", "tokens", of(2, kind(trace.KindTokens)), "8"},
		{"odd", "dp=2,tp=2,pp=2", "losses", of(3, what(trace.KindScalar, trace.Loss)), "4 7"},
		{"odd", "dp=2,tp=2,pp=2", "changes", of(1, last(trace.KindChanged)), "6"},
		{"odd", "dp=2,tp=2,pp=2", "unmoved", of(1, kind(trace.KindUnmoved)), "6"},
		{"odd", "dp=2,tp=2,pp=2", "collectives", last(trace.KindComm), "3 5"},
		{"odd", "dp=2,tp=2,pp=2", "tensor-parallel collectives", func(e trace.Event) bool { return e.Kind == trace.KindComm && e.Group == names.TP }, "5"},
		{"odd", "dp=2,tp=2,zero=2", "shares of changes", of(1, last(trace.KindChanged)), "6"},
		{"odd", "dp=2,tp=2,zero=2", "shares of moments", of(1, what(trace.KindDigest, trace.MomentM)), "4 7"},
		{"odd", "dp=4,zero=3", "gathers", of(2, kind(trace.KindGather)), "1 2"},
		{"odd", "dp=4,zero=3", "shares of weights", of(2, what(trace.KindDigest, trace.Weight)), "4 6 7"},
		{"odd", "dp=4,zero=3", "reductions", last(trace.KindComm), "3 5"},
	}) {
		t.Run(x.plan+" "+x.name, func(t *testing.T) {
			e := judged(t, &r, short(t, x.config, x.plan))
			less := contracttest.Without(e, contract.Test, x.drop)
			if count(e, contract.Test) == count(less, contract.Test) {
				t.Fatal("nothing was left out")
			}
			contracttest.Want(t, c, less, contract.Inconclusive, strings.Fields(x.clauses)...)
		})
	}
	for _, p := range []string{"dp=2,tp=2,pp=2", "dp=4,zero=3"} {
		e := judged(t, &r, short(t, "odd", p))
		contracttest.Want(t, c, contracttest.WithoutRank(e, contract.Test, 3), contract.Inconclusive, all...)
	}
}

// TestEditedProducts: what no decorator of a run can do is done to its history.
func TestEditedProducts(t *testing.T) {
	var r contracttest.Runner
	c := ddp.Suite()
	digest := func(e *trace.Event) { e.Digest = &kernels.Digest{A: e.Digest.A ^ 1, B: e.Digest.B} }
	comms := func(match func(trace.Event) bool) func(trace.Event) bool {
		return func(e trace.Event) bool { return e.Kind == trace.KindComm && match(e) }
	}
	for _, x := range race.Some(6, []struct {
		name, plan, clause string
		change             func(rank int, events []trace.Event) []trace.Event
	}{
		{"initial copy of the tied head", "dp=2,tp=2,pp=2", "1", on(7, each(func(e trace.Event) bool { return e.Tensor == "lm_head.weight" && e.Step < 0 }, digest))},
		{"a unit as one rank gathers it first", "dp=4,zero=3", "1", on(2, each(func(e trace.Event) bool { return e.What == "use" && e.Step == 0 }, digest))},
		{"a unit as one rank gathers it later", "dp=4,zero=3", "2", on(2, each(func(e trace.Event) bool { return e.What == "use" && e.Step == 1 }, digest))},
		{"reduced by another operation", "dp=2,tp=2,zero=2", "3", each(comms(func(e trace.Event) bool { return e.Op == "reduce-scatter" }), func(e *trace.Event) { e.Op = "all-reduce" })},
		{"one round of workers not reduced", "dp=2,tp=2,zero=2", "3", on(1, func(_ int, events []trace.Event) []trace.Event {
			i := slices.IndexFunc(events, comms(func(e trace.Event) bool { return e.Unit == "block.1" && e.Step == 1 && e.Op == "reduce-scatter" }))
			return slices.Delete(events, i, i+1)
		})},
		{"a worker on both slices of the other replica", "dp=2,tp=2,pp=2", "3", on(5, each(kind(trace.KindLeaf), func(e *trace.Event) { e.Worker = 3 - e.Worker }))},
		{"operations of both communicators exchanged", "dp=2,tp=2,pp=2", "5", on(6, func(_ int, events []trace.Event) []trace.Event {
			// Numbers and sizes fit; only the communicators do not.
			for i, a := range events {
				for j, b := range events {
					if a.Kind == trace.KindComm && b.Kind == trace.KindComm && a.Group == names.DP && b.Group == names.DP && a.Seq == b.Seq && a.Overlap && !b.Overlap {
						events[i].Overlap, events[j].Overlap = false, true
						return events
					}
				}
			}
			return events
		})},
		{"size of one tensor-parallel sum", "dp=2,tp=2,pp=2", "5", on(3, each(comms(func(e trace.Event) bool { return e.Group == names.TP && e.Unit == "block.3" }), func(e *trace.Event) { e.Count++ }))},
		{"a slice that changes elsewhere", "dp=2,tp=2,pp=2", "6", on(5, each(kind(trace.KindChanged), digest))},
		{"a slice and its replica that change elsewhere", "dp=2,tp=2,pp=2", "6", func(rank int, events []trace.Event) []trace.Event {
			if rank%4 != 1 {
				return events
			}
			return each(kind(trace.KindChanged), digest)(rank, events)
		}},
		{"an element of a slice that moved", "dp=2,tp=2,pp=2", "6", on(5, each(kind(trace.KindUnmoved), func(e *trace.Event) { e.Ranges = append(slices.Clone(e.Ranges), [2]int64{1, 2}) }))},
		{"a share that changed elsewhere", "dp=4,zero=3", "6", on(3, each(kind(trace.KindChanged), digest))},
		{"a value of one slice", "dp=2,tp=2,pp=2", "7", on(5, each(what(trace.KindDigest, trace.Grad), func(e *trace.Event) { e.Digest = &kernels.Digest{NonFinite: 1} }))},
		{"tokens on one stage", "dp=2,tp=2,pp=2", "8", on(6, each(kind(trace.KindTokens), func(e *trace.Event) { e.Count-- }))},
		{"a bounded gradient on a slice", "dp=3,tp=2,pp=2", "4", on(9, each(what(trace.KindDigest, trace.Grad), func(e *trace.Event) {
			e.Data = slices.Clone(e.Data)
			e.Data[0] += 1
		}))},
		{"a copy beside the bounded one", "dp=3,tp=2,pp=2", "4", on(9, each(func(e trace.Event) bool {
			return e.What == trace.Weight && e.Tensor == "model.layers.1.input_layernorm.weight"
		}, digest))},
		{"a bounded update on a slice", "dp=3,tp=2,pp=2", "6", on(9, each(kind(trace.KindChanged), digest))},
	}) {
		t.Run(x.plan+" "+x.name, func(t *testing.T) {
			e := judged(t, &r, short(t, "odd", x.plan))
			contracttest.Want(t, c, contracttest.Edit(e, contract.Test, x.change), contract.Violated, x.clause)
		})
	}
}

// TestTwoCommunicatorsAsOneAreNoEvidence: their orders cannot be told apart.
func TestTwoCommunicatorsAsOneAreNoEvidence(t *testing.T) {
	var r contracttest.Runner
	e := judged(t, &r, short(t, "nano", "dp=2"))
	joined := contracttest.Edit(e, contract.Test, each(kind(trace.KindComm), func(e *trace.Event) { e.Overlap = false }))
	contracttest.Want(t, ddp.Suite(), joined, contract.Inconclusive, "5")
}
