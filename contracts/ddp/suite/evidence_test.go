package suite_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/contracttest"
	ddp "github.com/lockstep-ml/lockstep/contracts/ddp/suite"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/internal/race"
	"github.com/lockstep-ml/lockstep/kernels"
)

// all are the numbers of the clauses.
var all = []string{"1", "2", "3", "4", "5", "6", "7", "8"}

// one runs the named case of level 1.
func one(t *testing.T, r *contracttest.Runner, name string) contract.Evidence {
	t.Helper()
	cases := ddp.Suite().Cases(contracttest.Options())
	i := slices.IndexFunc(cases, func(c suite.Case) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("no case %q", name)
	}
	e, err := r.Evidence(t, cases[i])
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func kind(k trace.Kind) func(trace.Event) bool {
	return func(e trace.Event) bool { return e.Kind == k }
}

func what(k trace.Kind, w string) func(trace.Event) bool {
	return func(e trace.Event) bool { return e.Kind == k && e.What == w }
}

// TestLessEvidenceIsInconclusive: a clause that misses evidence never holds, and
// is not violated either.
func TestLessEvidenceIsInconclusive(t *testing.T) {
	var r contracttest.Runner
	c := ddp.Suite()
	e := one(t, &r, "odd dp=2")
	for _, x := range race.Some(6, []struct {
		name    string
		role    contract.Role
		drop    func(trace.Event) bool
		clauses string
	}{
		{"spans", contract.Test, kind(trace.KindSpan), "2"},
		{"data", contract.Test, kind(trace.KindData), "8"},
		{"tokens", contract.Test, kind(trace.KindTokens), "8"},
		{"phases", contract.Test, kind(trace.KindPhase), "3"},
		{"leaves", contract.Test, kind(trace.KindLeaf), "3"},
		{"issues", contract.Test, kind(trace.KindIssue), "3"},
		{"collectives", contract.Test, kind(trace.KindComm), "3 5"},
		{"collectives of the last step", contract.Test, func(e trace.Event) bool { return e.Kind == trace.KindComm && e.Step == 1 }, "3 5"},
		{"weights", contract.Test, what(trace.KindDigest, trace.Weight), "1 2 4 7"},
		{"initial weights", contract.Test, func(e trace.Event) bool { return e.What == trace.Weight && e.Step < 0 }, "1 7"},
		{"moments", contract.Test, what(trace.KindDigest, trace.MomentV), "1 2 4 7"},
		{"reduced gradients", contract.Test, what(trace.KindDigest, trace.Grad), "4 7"},
		{"workers' gradients", contract.Test, what(trace.KindDigest, trace.WorkerGrad), "4 7"},
		{"one tensor", contract.Test, func(e trace.Event) bool { return e.Tensor == "model.norm.weight" }, "1 2 4 6 7"},
		{"counters", contract.Test, what(trace.KindScalar, trace.Counter), "2"},
		{"losses", contract.Test, what(trace.KindScalar, trace.Loss), "4 7"},
		{"norms", contract.Test, what(trace.KindScalar, trace.Norm), "4"},
		{"changes", contract.Test, kind(trace.KindChanged), "6"},
		{"unmoved", contract.Test, kind(trace.KindUnmoved), "6"},
		{"control's weights", contract.Control, what(trace.KindDigest, trace.Weight), "4 6"},
		{"control's workers", contract.Control, what(trace.KindDigest, trace.WorkerGrad), "4"},
		{"control's losses", contract.Control, what(trace.KindScalar, trace.Loss), "4"},
		{"control's changes", contract.Control, kind(trace.KindChanged), "6"},
		{"control's unmoved", contract.Control, kind(trace.KindUnmoved), "6"},
		{"control's data", contract.Control, kind(trace.KindData), "8"},
		{"everything", contract.Test, func(trace.Event) bool { return true }, "1 2 3 4 5 6 7 8"},
	}) {
		t.Run(x.name, func(t *testing.T) {
			less := contracttest.Without(e, x.role, x.drop)
			if n := count(e, x.role) - count(less, x.role); n == 0 {
				t.Fatal("nothing was left out")
			}
			contracttest.Want(t, c, less, contract.Inconclusive, strings.Fields(x.clauses)...)
		})
	}
	t.Run("a rank", func(t *testing.T) {
		contracttest.Want(t, c, contracttest.WithoutRank(e, contract.Test, 1), contract.Inconclusive, all...)
	})
	t.Run("the control", func(t *testing.T) {
		contracttest.Want(t, c, contracttest.WithoutRole(e, contract.Control), contract.Inconclusive, "4", "6", "8")
	})
	t.Run("the test", func(t *testing.T) {
		contracttest.Want(t, c, contracttest.WithoutRole(e, contract.Test), contract.Inconclusive, all...)
	})
	t.Run("the oracle", func(t *testing.T) {
		blind := e
		blind.Oracle = nil
		contracttest.Want(t, c, blind, contract.Inconclusive, "6")
	})
}

func count(e contract.Evidence, role contract.Role) (n int) {
	for range e.Histories[role].All {
		n++
	}
	return n
}

// TestBoundsNeedElements: a plan that is judged by a bound is inconclusive
// without the elements, without an oracle, and with one that bounds nothing.
func TestBoundsNeedElements(t *testing.T) {
	var r contracttest.Runner
	c := ddp.Suite()
	e := one(t, &r, "nano dp=3")
	contracttest.Want(t, c, e, contract.Held, all...)
	for _, res := range contracttest.Verdicts(c, e) {
		if res.Clause.ID == "C-DDP-001.4" && (res.MaxRatio <= 0 || res.MaxRatio > 1) {
			t.Errorf("largest observed / bound %v: want in (0,1]", res.MaxRatio)
		}
	}
	bare := contracttest.Edit(e, contract.Test, func(_ int, events []trace.Event) []trace.Event {
		for i := range events {
			events[i].Data = nil
		}
		return events
	})
	contracttest.Want(t, c, bare, contract.Inconclusive, "4", "6")
	blind := e
	blind.Oracle = nil
	contracttest.Want(t, c, blind, contract.Inconclusive, "4", "6")
	blind.Oracle = boundless{e.Oracle}
	contracttest.Want(t, c, blind, contract.Inconclusive, "4")
}

// boundless is an oracle whose bounds say nothing.
type boundless struct{ contract.Oracle }

func (b boundless) Gradient(cfg spec.Config, step int, weights map[string][]float32) (map[string]contract.Bounded, error) {
	exact, err := b.Oracle.Gradient(cfg, step, weights)
	out := map[string]contract.Bounded{}
	for name, x := range exact {
		inf := make([]float64, len(x.Bound))
		for i := range inf {
			inf[i] = 1 / float64(0*i) // +Inf
		}
		out[name] = contract.Bounded{Value: x.Value, Bound: inf}
	}
	return out, err
}

// TestEditedHistories: what no decorator of a run can do is done to its history.
func TestEditedHistories(t *testing.T) {
	var r contracttest.Runner
	c := ddp.Suite()
	e := one(t, &r, "odd dp=2")
	contracttest.Want(t, c, e, contract.Held, all...)
	for _, x := range race.Some(6, []struct {
		name, clause string
		role         contract.Role
		change       func(rank int, events []trace.Event) []trace.Event
	}{
		{"an initial weight", "1", contract.Test, on(1, each(func(e trace.Event) bool { return e.What == trace.Weight && e.Step == -1 }, func(e *trace.Event) {
			e.Digest = &kernels.Digest{A: 1}
		}))},
		{"a step not counted", "2", contract.Test, on(1, each(what(trace.KindScalar, trace.Counter), func(e *trace.Event) { e.Value-- }))},
		{"buffers in one memory", "2", contract.Test, each(kind(trace.KindSpan), func(e *trace.Event) {
			e.Span = &kernels.Span{Space: "device", Lo: 16, Hi: 32}
		})},
		{"a worker that counts twice", "3", contract.Test, func(rank int, events []trace.Event) []trace.Event {
			i := slices.IndexFunc(events, kind(trace.KindLeaf))
			return append(events, events[i])
		}},
		{"a worker on the wrong rank", "3", contract.Test, each(kind(trace.KindLeaf), func(e *trace.Event) { e.Worker = 3 - e.Worker })},
		{"a worker that the plan does not have", "3", contract.Test, func(rank int, events []trace.Event) []trace.Event {
			return append(events, trace.Event{Kind: trace.KindLeaf, Rank: rank, Worker: 4, Unit: "embed"})
		}},
		{"half a unit reduced", "3", contract.Test, each(reduction("block.1"), func(e *trace.Event) { e.Count /= 2 })},
		{"reductions after the backward pass", "3", contract.Test, func(_ int, events []trace.Event) []trace.Event {
			var late []trace.Event
			for _, e := range events {
				if e.Kind == trace.KindIssue {
					late = append(late, e)
				}
			}
			return append(slices.DeleteFunc(events, kind(trace.KindIssue)), late...)
		}},
		{"the control's loss", "4", contract.Control, each(what(trace.KindScalar, trace.Loss), func(e *trace.Event) { e.Bits ^= 1 })},
		{"a number left out", "5", contract.Test, on(1, each(kind(trace.KindComm), func(e *trace.Event) {
			if e.Seq > 3 {
				e.Seq++
			}
		}))},
		{"another size", "5", contract.Test, on(1, each(reduction("block.1"), func(e *trace.Event) { e.Count++ }))},
		{"another element moved", "6", contract.Test, on(0, each(kind(trace.KindUnmoved), func(e *trace.Event) {
			if e.Tensor == "model.norm.weight" {
				e.Ranges = append(e.Ranges, [2]int64{34, 35})
			}
		}))},
		{"the control changes other elements than its gradient says", "6", contract.Control, each(kind(trace.KindChanged), func(e *trace.Event) {
			e.Digest = &kernels.Digest{A: e.Digest.A + 1, B: e.Digest.B}
		})},
		{"a skipped step", "7", contract.Test, func(rank int, events []trace.Event) []trace.Event {
			return append(events, trace.Event{Kind: trace.KindSkip, Rank: rank, Step: 1, Text: "said so"})
		}},
		{"a sequence on the wrong worker", "8", contract.Test, on(0, each(kind(trace.KindData), func(e *trace.Event) { e.Worker = 1 - e.Worker }))},
		{"a sequence of another batch", "8", contract.Test, on(0, each(kind(trace.KindData), func(e *trace.Event) {
			e.IDs = slices.Clone(e.IDs)
			e.IDs[0] += 1000
		}))},
		{"tokens of one rank alone", "8", contract.Test, on(1, each(kind(trace.KindTokens), func(e *trace.Event) { e.Count /= 2 }))},
	}) {
		t.Run(x.name, func(t *testing.T) {
			contracttest.Want(t, c, contracttest.Edit(e, x.role, x.change), contract.Violated, x.clause)
		})
	}
}

// TestBytesOfAgreement: replicas agree by the digests of their state, so a length that is
// another is none of the plan's; what is told of files of checkpoints has any length.
func TestBytesOfAgreement(t *testing.T) {
	var r contracttest.Runner
	e := one(t, &r, "odd dp=2")
	told := contracttest.Edit(e, contract.Test, func(rank int, events []trace.Event) []trace.Event {
		last := 0
		for i, x := range events {
			if x.Kind == trace.KindComm && x.Op == names.OpAllGatherBytes {
				last = i
			}
		}
		events[last].Count += int64(rank)
		return events
	})
	contracttest.Want(t, ddp.Suite(), told, contract.Inconclusive, "5")
}

// TestAgreementOfNaN: replicas that agree in elements that are not finite prove
// nothing, and do not differ.
func TestAgreementOfNaN(t *testing.T) {
	var r contracttest.Runner
	e := one(t, &r, "odd dp=2")
	lost := contracttest.Edit(e, contract.Test, each(what(trace.KindDigest, trace.Weight), func(e *trace.Event) {
		e.Digest = &kernels.Digest{A: 1, NonFinite: 1}
	}))
	contracttest.Want(t, ddp.Suite(), lost, contract.Inconclusive, "2")
}

// TestBuffersOfProcesses: equal addresses are one memory in one process, and two
// in two.
func TestBuffersOfProcesses(t *testing.T) {
	var r contracttest.Runner
	c := ddp.Suite()
	e := one(t, &r, "odd dp=2")
	var first []trace.Event
	for _, ev := range e.Histories[contract.Test].Ranks[0] {
		if ev.Kind == trace.KindSpan {
			first = append(first, ev)
		}
	}
	shared := contracttest.Edit(e, contract.Test, on(1, func(rank int, events []trace.Event) []trace.Event {
		events = slices.DeleteFunc(events, kind(trace.KindSpan))
		for _, ev := range first {
			ev.Rank = rank
			events = slices.Insert(events, 0, ev) // before its end
		}
		return events
	}))
	for _, x := range []struct {
		other trace.Origin // of rank 1; rank 0 is process 1 of host x
		want  contract.Verdict
	}{
		{trace.Origin{Host: "x", Process: 1}, contract.Violated},
		{trace.Origin{Host: "x", Process: 1, Backend: "other", Device: "other"}, contract.Violated},
		{trace.Origin{Host: "x", Process: 2}, contract.Held},
		{trace.Origin{Host: "y", Process: 1}, contract.Held},
		{trace.Origin{Host: "y", Process: 2}, contract.Held},
	} {
		shared.Histories[contract.Test].Origins = map[int]trace.Origin{0: {Host: "x", Process: 1}, 1: x.other}
		t.Run(fmt.Sprintf("rank 1 in process %d of %s", x.other.Process, x.other.Host), func(t *testing.T) {
			contracttest.Want(t, c, shared, x.want, "2")
		})
	}
	// Of a history without origins the header says where all ranks ran.
	shared.Histories[contract.Test].Origins = nil
	contracttest.Want(t, c, shared, contract.Violated, "2")
}

// each changes the events that match.
func each(match func(trace.Event) bool, change func(*trace.Event)) func(int, []trace.Event) []trace.Event {
	return func(_ int, events []trace.Event) []trace.Event {
		for i := range events {
			if match(events[i]) {
				change(&events[i])
			}
		}
		return events
	}
}

// on applies a change to one rank.
func on(rank int, change func(int, []trace.Event) []trace.Event) func(int, []trace.Event) []trace.Event {
	return func(r int, events []trace.Event) []trace.Event {
		if r != rank {
			return events
		}
		return change(r, events)
	}
}

func reduction(unit string) func(trace.Event) bool {
	return func(e trace.Event) bool {
		return e.Kind == trace.KindComm && e.Op == names.OpAllReduce && e.Unit == unit
	}
}

// TestOtherTasksAreNotCompared: a control of another task proves nothing.
func TestOtherTasksAreNotCompared(t *testing.T) {
	var r contracttest.Runner
	c := ddp.Suite()
	odd, nano := one(t, &r, "odd dp=2"), one(t, &r, "nano dp=2")
	odd.Histories[contract.Control] = nano.Histories[contract.Control]
	contracttest.Want(t, c, odd, contract.Inconclusive, "4", "6", "8")
}

// TestOptionsNarrowTheCases: plans, configuration, steps and seed are the
// options', and every run of one task shares its control.
func TestOptionsNarrowTheCases(t *testing.T) {
	o := contracttest.Options()
	o.Plans, o.Steps, o.Seed = []string{"dp=2", "dp=3"}, 5, 9
	cases := ddp.Suite().Cases(o)
	var names []string
	keys := map[string]bool{}
	for _, cs := range cases {
		names = append(names, cs.Name)
		test, control := cs.Runs[contract.Test], cs.Runs[contract.Control]
		keys[control.Key] = true
		if test.Config.Steps != 5 || test.Config.Seed != 9 || control.Config.Seed != 9 {
			t.Errorf("%s: %d steps, seeds %d and %d", cs.Name, test.Config.Steps, test.Config.Seed, control.Config.Seed)
		}
		if exact := test.Config.Plan.Exact(test.Config.Model); test.Config.Recording.Capture == exact {
			t.Errorf("%s: captures elements: %v, exact: %v", cs.Name, test.Config.Recording.Capture, exact)
		}
	}
	if want := []string{"nano dp=2", "nano dp=3", "odd dp=2", "odd dp=3"}; !slices.Equal(names, want) {
		t.Errorf("cases %q: want %q", names, want)
	}
	if len(keys) != 2 {
		t.Errorf("%d controls for two tasks", len(keys))
	}
}
