package contracts

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// recordedOf is a run of two steps on a plan, with all that a recorded one has.
func recordedOf(t *testing.T, config, plan string, change func(*spec.Config)) *trace.History {
	t.Helper()
	cfg := on(t, config, plan, false)
	cfg.Model.SeqLen, cfg.Steps = 2, 2
	cfg.Recording = spec.Recording{Digests: true, Workers: true, Taps: cfg.Plan.TP > 1, KeepGoing: true}
	if change != nil {
		change(&cfg)
	}
	out, err := launch.Local(t.Context(), cfg, data.Default(), launch.Parts{Backend: good})
	if err != nil {
		t.Fatal(err)
	}
	return out.History
}

// unplanned is what the reading of a history finds against its plan.
func unplanned(t *testing.T, h *trace.History) string {
	t.Helper()
	r, err := evidence.New(h)
	if err != nil {
		t.Fatal(err)
	}
	return r.Unplanned()
}

// TestRightRunsAreThoseOfTheirPlans: nothing that a run records, under whatever plan,
// contradicts that.
func TestRightRunsAreThoseOfTheirPlans(t *testing.T) {
	plans := []string{
		"dp=1", "dp=3", "dp=4", "dp=2,microbatches=8", "dp=4,comm=ring", "dp=4,comm=star", "tp=2", "tp=4,vocab=parallel", "dp=2,tp=2",
		"pp=2", "pp=2,schedule=gpipe,microbatches=8", "pp=2,schedule=interleaved,virtual=2,microbatches=8", "dp=2,tp=2,pp=2",
		"dp=2,zero=1", "dp=2,zero=1,shard=round-robin", "dp=2,zero=1,shard=balanced", "dp=3,zero=2", "dp=4,zero=2", "dp=2,zero=3",
		"dp=2,zero=3,microbatches=8", "dp=2,zero=3,shard=tensors", "dp=2,pp=2,zero=1", "dp=2,pp=2,zero=3", "dp=2,tp=2,zero=2", "dp=2,zero=3,comm=star",
	}
	for _, config := range []string{"nano", "odd"} { // odd is tied, and has fewer KV heads than groups
		for _, p := range plans {
			if why := unplanned(t, recordedOf(t, config, p, nil)); why != "" {
				t.Errorf("%s %s: %s", config, p, why)
			}
		}
	}
	for name, change := range map[string]func(*spec.Config){
		"sgd":       func(c *spec.Config) { c.Optimizer.Name = "sgd" },
		"captured":  func(c *spec.Config) { c.Recording.Capture = true },
		"few":       func(c *spec.Config) { c.Sequences = 3 },
		"tied":      func(c *spec.Config) { c.Model.Tied = true },
		"no digest": func(c *spec.Config) { c.Recording = spec.Recording{} },
	} {
		for _, p := range []string{"dp=2", "dp=2,zero=3", "dp=2,pp=2,zero=1", "tp=2,vocab=parallel"} {
			if why := unplanned(t, recordedOf(t, "nano", p, change)); why != "" {
				t.Errorf("%s %s: %s", name, p, why)
			}
		}
	}
}

// tampering changes, or leaves out, the events of a kind that is selects.
type tampering struct {
	name string
	kind trace.Kind
	is   func(*trace.Event) bool
	edit func(*trace.Event) // nil leaves the event out
	want string
}

// TestRecordsThatAreNotOfTheirPlan: whatever of a record is changed alike on all ranks,
// or on one, and contradicts the plan, is said.
func TestRecordsThatAreNotOfTheirPlan(t *testing.T) {
	in := func(step int, unit string) func(*trace.Event) bool {
		return func(e *trace.Event) bool { return e.Step == step && e.Unit == unit && e.Micro == 0 }
	}
	what := func(w string) func(*trace.Event) bool { return func(e *trace.Event) bool { return e.What == w } }
	op := func(o, unit string) func(*trace.Event) bool {
		return func(e *trace.Event) bool { return e.Op == o && (unit == "" || e.Unit == unit) }
	}
	all := func(*trace.Event) bool { return true }
	shared := []tampering{
		{"a pass of another micro-batch", trace.KindPhase, in(0, "block.2"), func(e *trace.Event) { e.Micro = 1 }, "micro-batch 1"},
		{"a pass of none", trace.KindPhase, in(0, "block.2"), func(e *trace.Event) { e.Micro = 99 }, "over micro-batch 99"},
		{"a pass of another worker", trace.KindPhase, in(0, "block.2"), func(e *trace.Event) { e.Worker = 77 }, "says 77's"},
		{"a pass in another step", trace.KindPhase, in(0, "block.2"), func(e *trace.Event) { e.Step = 1 }, "passes in step 0"},
		{"a pass of another unit", trace.KindPhase, in(0, "block.2"), func(e *trace.Event) { e.Unit = "block.3" }, "twice"},
		{"a reduction of another unit", trace.KindIssue, in(0, "block.2"), func(e *trace.Event) { e.Unit = "block.3" }, "reductions of unit"},
		{"a reduction of none", trace.KindIssue, in(0, "block.2"), func(e *trace.Event) { e.Unit = "block.9" }, "block.9"},
		{"a reduction in another step", trace.KindIssue, in(0, "block.2"), func(e *trace.Event) { e.Step = 1 }, "reductions of unit block.2 in step 0"},
		{"a reduction left out", trace.KindIssue, in(1, "block.2"), nil, "reductions of unit block.2 in step 1"},
		{"weights of another size", trace.KindMemory, what(names.MemWeights), func(e *trace.Event) { e.Count += 4 }, "bytes of"},
		{"a peak below", trace.KindMemory, what(names.MemOther), func(e *trace.Event) { e.Count *= 2 }, "bytes of other"},
		{"memory left out", trace.KindMemory, what(names.MemOther), nil, "memory for other"},
		{"a buffer of another name", trace.KindSpan, what("grad.0"), func(e *trace.Event) { e.What = "grad.9" }, "grad.9"},
		{"a buffer twice", trace.KindSpan, what("grad.0"), func(e *trace.Event) { e.What = "weight" }, "buffers"},
		{"a buffer's elements", trace.KindSpan, what("grad.0"), func(e *trace.Event) { e.Count++ }, "grad.0 buffer"},
		{"a buffer's range", trace.KindSpan, what("grad.0"), func(e *trace.Event) { s := *e.Span; s.Hi += 64; e.Span = &s }, "grad.0 buffer"},
		{"a buffer's step", trace.KindSpan, what("grad.0"), func(e *trace.Event) { e.Step = 0 }, "when it began"},
		{"a split's unit", trace.KindComm, op(names.OpSplit, "pp"), func(e *trace.Event) { e.Unit = "tp" }, "split"},
		{"a split's step", trace.KindComm, op(names.OpSplit, ""), func(e *trace.Event) { e.Step = 0 }, "split"},
		{"an operation's number", trace.KindComm, op(names.OpAllReduceInt, trace.Norm), func(e *trace.Event) { e.Seq += 5 }, "and no operation"},
		{"scalars that do not count", trace.KindScalar, what(trace.Norm), func(e *trace.Event) { e.Once = false }, "norm of step 0"},
		{"no scalar that counts", trace.KindScalar, all, func(e *trace.Event) { e.Once = false }, "of step 0"},
		{"changes that do not count", trace.KindChanged, all, func(e *trace.Event) { e.Once = false }, "changed event"},
		{"rests that do not count", trace.KindUnmoved, all, func(e *trace.Event) { e.Once = false }, "unmoved event"},
		{"workers' gradients that do not count", trace.KindDigest, what(trace.WorkerGrad), func(e *trace.Event) { e.Once = false }, "logical worker 0's gradient"},
		{"squares of no number", trace.KindDigest, what(trace.Weight), func(e *trace.Event) { e.Squares /= 0 * e.Squares }, "of finite elements"},
		{"squares left out", trace.KindDigest, what(trace.Weight), func(e *trace.Event) { e.Squares = 0 }, "no squares"},
	}
	for plan, more := range map[string][]tampering{
		"dp=2": {
			{"an agreement's size", trace.KindComm, op(names.OpAllGatherBytes, names.Agree), func(e *trace.Event) { e.Count++ }, "with its replicas"},
			{"squares of one rank", trace.KindDigest, func(e *trace.Event) bool { return e.Rank == 1 && e.What == trace.Weight }, func(e *trace.Event) { e.Squares *= 4 }, "the equal one of rank 0"},
			{"passes of one rank left out", trace.KindPhase, func(e *trace.Event) bool { return e.Rank == 1 }, nil, "rank 1 recorded no phase event"},
			{"reductions of one rank left out", trace.KindIssue, func(e *trace.Event) bool { return e.Rank == 0 }, nil, "rank 0 recorded no issue event"},
		},
		"tp=2": nil,
		"pp=2": {{"a message's number", trace.KindComm, func(e *trace.Event) bool { return e.Op == names.OpRecv && e.Seq == 7 }, func(e *trace.Event) { e.Seq++ }, "and no operation 7"}},
		"dp=2,zero=3": {
			{"a gather for another micro-batch", trace.KindGather, func(e *trace.Event) bool { return e.What == names.Gather && e.Step == 1 }, func(e *trace.Event) { e.Micro++ }, "gather of unit"},
			{"a use in another micro-batch", trace.KindGather, what(names.Use), func(e *trace.Event) { e.Micro++ }, "use of unit"},
			{"a release in another micro-batch", trace.KindGather, what(names.Release), func(e *trace.Event) { e.Micro++ }, "release of unit"},
		},
	} {
		h := recordedOf(t, "nano", plan, nil)
		for _, x := range slices.Concat(shared, more) {
			if got := unplanned(t, x.on(h)); !strings.Contains(got, x.want) || got == "" {
				t.Errorf("%s: %s: %q, want %q", plan, x.name, got, x.want)
			}
		}
	}
}

// on is a history with the edits.
func (x *tampering) on(h *trace.History) *trace.History {
	out := *h
	out.Ranks = map[int][]trace.Event{}
	for rank, events := range h.Ranks {
		var kept []trace.Event
		for _, e := range events {
			if e.Kind == x.kind && x.is(&e) {
				if x.edit == nil {
					continue
				}
				x.edit(&e)
			}
			kept = append(kept, e)
		}
		out.Ranks[rank] = kept
	}
	return &out
}
