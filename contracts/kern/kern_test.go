package kern_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/contracttest/transcript"
	"github.com/lockstep-ml/lockstep/contracts/kern"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/golden"
	"github.com/lockstep-ml/lockstep/kernels"
)

// drilled is the history of a drill of kernels in which all was right, by hand:
// the backend's routine "a" ran in it. On the seed whose results are recorded the
// first case of a kernel has the digest that all have together.
func drilled(t *testing.T, backend string, seed uint64, names ...string) *trace.History {
	t.Helper()
	s := kern.Spec{Kernels: names, Seed: seed, Level: 1}
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	g, err := golden.LoadKernels()
	if err != nil {
		t.Fatal(err)
	}
	h := &trace.History{Ranks: map[int][]trace.Event{0: nil}, Header: trace.Header{Schema: trace.Schema, Arithmetic: kernels.Arithmetic, World: 1, Backend: backend, Spec: trace.Spec{Drill: b}}}
	tally := func(what string, calls int64) {
		if backend == "ref" || backend == "cpu-ref" {
			h.Ranks[0] = append(h.Ranks[0], trace.Event{Kind: trace.KindRoutine, What: what})
			return
		}
		h.Ranks[0] = append(h.Ranks[0], trace.Event{Kind: trace.KindRoutine, What: what, Count: 2},
			trace.Event{Kind: trace.KindRoutine, What: what, Unit: "a", Count: 3 + calls}, trace.Event{Kind: trace.KindRoutine, What: what, Unit: "b", Count: 5 + calls})
	}
	tally(trace.Before, 0)
	cases := s.Cases()
	number := map[string]int{}
	for _, c := range cases {
		number[c.Kernel]++
	}
	seen := map[string]bool{}
	for _, c := range cases {
		e := trace.Event{Kind: trace.KindKernel, Op: c.Kernel, Unit: c.Name, Count: int64(c.Elements), What: trace.Same, Digest: &kernels.Digest{}}
		if want, ok := g.Of(c.Kernel, 1, number[c.Kernel], kernels.Arithmetic); ok && !seen[c.Kernel] && seed == golden.KernelSeed {
			e.Digest = &want
		}
		seen[c.Kernel] = true
		h.Ranks[0] = append(h.Ranks[0], e)
	}
	tally(trace.After, 10)
	tally(trace.Idle, 10)
	return h
}

// verdicts are what clauses came to, as letters: h, v, i; and all that they say.
func verdicts(all map[contract.Role]*trace.History, clauses ...int) (letters, says string) {
	for _, r := range results(all, clauses...) {
		letters += r.Verdict().String()[:1]
		for _, f := range r.Findings {
			says += fmt.Sprintf("%s %s: got %s, want %s: %s\n", strings.TrimPrefix(r.Clause.ID, "C-KERN-001"), f.Tensor, f.Got, f.Want, f.Message)
		}
		says += strings.Join(r.Doubts, "\n")
	}
	return letters, says
}

// results are what clauses came to.
func results(all map[contract.Role]*trace.History, clauses ...int) (out []contract.Result) {
	c := kern.Contract()
	e := contract.Evidence{Case: "by hand", Histories: map[contract.Role]*trace.History{}}
	for role, h := range all {
		e.Histories[role] = transcript.Ended(h)
	}
	for _, n := range clauses {
		e.Clauses = append(e.Clauses, c.Clauses[n-1].ID)
	}
	judged, err := contract.Judge(context.Background(), c, []contract.Evidence{e})
	if err != nil {
		panic(err) // nothing ends that context
	}
	for _, n := range clauses {
		out = append(out, judged[n-1])
	}
	return out
}

func alone(h *trace.History) map[contract.Role]*trace.History {
	return map[contract.Role]*trace.History{contract.Test: h}
}

// first is the place of the first case of a kernel.
func first(h *trace.History, kernel string) int {
	return slices.IndexFunc(h.Ranks[0], func(e trace.Event) bool { return e.Kind == trace.KindKernel && e.Op == kernel })
}

// TestResults: clauses 4 (results), 6 (integers) and 7 (what is no output), on
// backends that are plain Go and that are not.
func TestResults(t *testing.T) {
	const pinned, free = golden.KernelSeed, 7
	for _, c := range []struct {
		name, backend string
		seed          uint64
		do            func(x *trace.Event) // of the first case of SwiGLU and of Hash
		want          string               // of clauses 4, 6 and 7
		says          string
	}{
		{"right", "cpu-x", pinned, nil, "hhh", ""},
		{"right", "ref", pinned, nil, "hhh", ""},
		{"right", "cpu-ref", pinned, nil, "hhh", ""},
		{"right on another seed", "cpu-x", free, nil, "hhh", ""},
		{"plain Go on another seed is held against itself", "ref", free, nil, "ihh", ""},
		{"plain Go on another seed is held against itself", "cpu-ref", free, nil, "ihh", ""},
		{"output", "cpu-x", free, func(x *trace.Event) { x.What, x.Got, x.Want, x.Text = trace.Output, 1, 2, "o[3]" }, "vvh", "got 0x00000001, want 0x00000002: case "},
		{"returned", "cpu-x", free, func(x *trace.Event) { x.What, x.Got, x.Text = trace.Returned, 1, "7, not 8" }, "vvh", ".4 SwiGLU: got , want : case "},
		{"failed", "cpu-x", free, func(x *trace.Event) { x.What, x.Got, x.Text, x.Count = trace.Failed, 1, "panic", 0 }, "vvi", "SwiGLU: got , want : case "},
		{"guard", "cpu-x", free, func(x *trace.Event) { x.What, x.Text = trace.Guard, "guard" }, "iiv", ".7 SwiGLU: got 0x00000000"},
		{"input", "cpu-x", free, func(x *trace.Event) { x.What, x.Text = trace.Input, "input" }, "iiv", ".7 Hash"},
		{"compared less", "cpu-x", free, func(x *trace.Event) { x.Count-- }, "iii", "saw"},
		{"compared less of what is wrong", "cpu-x", free, func(x *trace.Event) { x.What, x.Count = trace.Output, 1 }, "vvh", ""},
		{"of another kernel", "cpu-x", free, func(x *trace.Event) { x.Op = "Add" }, "iii", "saw"},
		{"of another case", "cpu-x", free, func(x *trace.Event) { x.Unit = "other" }, "iii", "saw"},
		{"another definition", "cpu-x", pinned, func(x *trace.Event) { x.Digest = &kernels.Digest{A: 1} }, "vvh", "what package ref gives here is not what was recorded"},
		{"another definition", "ref", pinned, func(x *trace.Event) { x.Digest = &kernels.Digest{A: 1} }, "vvh", "got digest 00000000000000010000000000000000, want digest"},
		{"half a definition", "ref", pinned, func(x *trace.Event) { x.Digest = &kernels.Digest{A: x.Digest.A + 1, B: x.Digest.B} }, "vvh", "what package ref gives"},
		{"another half", "ref", pinned, func(x *trace.Event) { x.Digest = &kernels.Digest{A: x.Digest.A, B: x.Digest.B + 1} }, "vvh", "what package ref gives"},
		{"output", "ref", pinned, func(x *trace.Event) { x.What = trace.Output }, "vvh", ""},
		{"no definition", "ref", pinned, func(x *trace.Event) { x.Digest = nil }, "iih", "saw"},
		{"another definition on another seed", "cpu-x", free, func(x *trace.Event) { x.Digest = &kernels.Digest{A: 1} }, "hhh", ""},
		{"output of plain Go on another seed", "ref", free, func(x *trace.Event) { x.What = trace.Output }, "ivh", ""},
	} {
		t.Run(c.name+" "+c.backend, func(t *testing.T) {
			h := drilled(t, c.backend, c.seed, append(slices.Clone(kern.Families()[3].Kernels), kern.Families()[5].Kernels...)...)
			if c.do != nil {
				c.do(&h.Ranks[0][first(h, "SwiGLU")])
				c.do(&h.Ranks[0][first(h, "Hash")])
			}
			if c.name == "failed" { // a call that failed left nothing to compare
				h.Ranks[0][first(h, "SwiGLU")].Count = 0
			}
			if got, says := verdicts(alone(h), 4, 6, 7); got != c.want || !strings.Contains(says, c.says) {
				t.Errorf("%s, want %s and %q:\n%s", got, c.want, c.says, says)
			}
		})
	}
}

// TestMemoryAndMisuse: of these kernels clause 7 reports whatever goes wrong.
func TestMemoryAndMisuse(t *testing.T) {
	for what, want := range map[string]string{trace.Same: "h", trace.Output: "v", trace.Returned: "v", trace.Failed: "v", trace.Guard: "v", trace.Input: "v"} {
		for _, kernel := range kern.Families()[6].Kernels {
			h := drilled(t, "cpu-x", 7, kern.Families()[6].Kernels...)
			h.Ranks[0][first(h, kernel)].What = what
			if got, says := verdicts(alone(h), 7); got != want {
				t.Errorf("%s of %s: %s, want %s\n%s", what, kernel, got, want, says)
			}
		}
	}
}

// TestCasesTwice: a second event of a case is reported by its kernel's clause, and
// counts for nothing.
func TestCasesTwice(t *testing.T) {
	h := drilled(t, "cpu-x", 7, "SwiGLU", "Hash")
	again := h.Ranks[0][first(h, "Hash")]
	h.Ranks[0] = append(h.Ranks[0], again)
	if got, says := verdicts(alone(h), 4, 6, 7); got != "ivh" && got != "hvh" || !strings.Contains(says, ".6 Hash: got , want : case "+again.Unit+" was recorded twice") {
		t.Errorf("%s\n%s", got, says)
	}
	h.Ranks[0][first(h, "Hash")].What = trace.Output
	if got, says := verdicts(alone(h), 6); got != "v" || strings.Count(says, "\n") != 2 {
		t.Errorf("wrong, and right again: %s\n%s", got, says)
	}
	h.Ranks[0] = slices.Delete(h.Ranks[0], first(h, "Hash")+1, first(h, "Hash")+2)
	if _, says := verdicts(alone(h), 6); !strings.Contains(says, "saw") {
		t.Errorf("a case twice in place of another: %s", says)
	}
}

// TestNotRecorded: a kernel without recorded results is not held by the seed that
// has them.
func TestNotRecorded(t *testing.T) {
	h := drilled(t, "cpu-x", golden.KernelSeed, "Hash")
	h.Header.Arithmetic = 99
	if got, says := verdicts(alone(h), 6); got != "i" || !strings.Contains(says, "Hash: no results of ") {
		t.Errorf("%s\n%s", got, says)
	}
}

// clone copies runs whose events an edit changes.
func clone(all map[contract.Role]*trace.History) map[contract.Role]*trace.History {
	out := map[contract.Role]*trace.History{}
	for role, h := range all {
		x := *h
		x.Ranks = map[int][]trace.Event{0: slices.Clone(h.Ranks[0])}
		out[role] = &x
	}
	return out
}

// families are the runs of all families on a backend.
func families(t *testing.T, backend string) map[contract.Role]*trace.History {
	out := map[contract.Role]*trace.History{}
	for i, f := range kern.Families() {
		role := contract.Role(f.Name)
		if i == 0 {
			role = contract.Test
		}
		out[role] = drilled(t, backend, 7, f.Kernels...)
	}
	return out
}

// TestTallies: clause 8, on tallies by hand.
func TestTallies(t *testing.T) {
	const gates contract.Role = "gates and loss"
	// set gives a routine other calls at a time.
	set := func(what, unit string, to func(int64) int64) func(map[contract.Role]*trace.History) {
		return func(all map[contract.Role]*trace.History) {
			for i := range all[gates].Ranks[0] {
				if e := &all[gates].Ranks[0][i]; e.Kind == trace.KindRoutine && e.What == what && e.Unit == unit {
					e.Count = to(e.Count)
				}
			}
		}
	}
	drop := func(want func(trace.Event) bool, from ...contract.Role) func(map[contract.Role]*trace.History) {
		return func(all map[contract.Role]*trace.History) {
			for role, h := range all {
				if len(from) == 0 || slices.Contains(from, role) {
					h.Ranks[0] = slices.DeleteFunc(h.Ranks[0], want)
				}
			}
		}
	}
	still := func(unit string, from ...contract.Role) func(map[contract.Role]*trace.History) {
		return func(all map[contract.Role]*trace.History) {
			for role, h := range all {
				for i := range h.Ranks[0] {
					if e := &h.Ranks[0][i]; e.Kind == trace.KindRoutine && e.Unit != "" && (unit == "" || e.Unit == unit) && (len(from) == 0 || slices.Contains(from, role)) {
						e.Count = 4
					}
				}
			}
		}
	}
	empty := func(from ...contract.Role) func(map[contract.Role]*trace.History) {
		return func(all map[contract.Role]*trace.History) {
			drop(func(e trace.Event) bool { return e.Kind == trace.KindRoutine && e.Unit != "" }, from...)(all)
			for role, h := range all {
				for i := range h.Ranks[0] {
					if e := &h.Ranks[0][i]; e.Kind == trace.KindRoutine && (len(from) == 0 || slices.Contains(from, role)) {
						e.Count = 0
					}
				}
			}
		}
	}
	routine := func(what, unit string) func(trace.Event) bool {
		return func(e trace.Event) bool { return e.Kind == trace.KindRoutine && e.What == what && e.Unit == unit }
	}
	made := map[string]map[contract.Role]*trace.History{}
	for _, c := range []struct {
		name, backend string
		do            func(all map[contract.Role]*trace.History)
		want, says    string
	}{
		{"counted", "cpu-x", nil, "h", ""},
		{"plain Go", "ref", nil, "h", ""},
		{"plain Go", "cpu-ref", nil, "h", ""},
		{"lists nothing", "cpu-x", empty(), "i", "backend cpu-x is not plain Go, and of the 0 routines that it lists none ran"},
		{"lists nothing in a run", "cpu-x", empty(gates), "i", "gates and loss run: backend cpu-x is not plain Go"},
		{"lists nothing", "refined", empty(), "i", "is not plain Go"},
		{"nothing ran in a run", "cpu-x", still("", gates), "i", "gates and loss run: backend cpu-x is not plain Go, and of the 2 routines that it lists none ran"},
		{"nothing ran in a run of memory", "cpu-x", still("", "memory"), "h", ""},
		{"one ran in a run", "cpu-x", still("a", gates), "h", ""},
		{"one never ran", "cpu-x", still("b"), "i", "routines that never ran: b"},
		{"backwards", "cpu-x", set(trace.After, "a", func(int64) int64 { return 2 }), "v", ".8 a: got 2, want 3: the gates and loss run: the tally counts backwards"},
		{"backwards in the end", "cpu-x", set(trace.Idle, "a", func(n int64) int64 { return n - 1 }), "v", ".8 a: got 12, want 3: the gates and loss run: the tally counts backwards"},
		{"runs on", "cpu-x", set(trace.Idle, "b", func(n int64) int64 { return n + 1 }), "v", ".8 b: got 16, want 15: the gates and loss run: the tally moves while nothing runs"},
		{"less than it says", "cpu-x", drop(routine(trace.After, "b"), gates), "i", "gates and loss run: backend cpu-x: no complete tally of its routines (after)"},
		{"no number", "cpu-x", drop(routine(trace.Before, ""), gates), "i", "no complete tally of its routines (before)"},
		{"none at a time", "cpu-x", drop(func(e trace.Event) bool { return e.What == trace.Idle }), "i", "(idle)"},
		{"more than it says", "cpu-x", set(trace.Idle, "", func(int64) int64 { return 1 }), "i", "(idle)"},
		{"another routine later", "cpu-x", func(all map[contract.Role]*trace.History) {
			x := all[gates].Ranks[0]
			x[len(x)-1].Unit = "c"
		}, "v", "got 2, want 2: the gates and loss run: the tally lists other routines than before"},
		{"another routine for a while", "cpu-x", func(all map[contract.Role]*trace.History) {
			for i := range all[gates].Ranks[0] {
				if e := &all[gates].Ranks[0][i]; e.What == trace.After && e.Unit == "b" {
					e.Unit, e.Count = "c", 15
				}
			}
		}, "v", "the tally lists other routines than before"},
		{"a routine twice", "cpu-x", func(all map[contract.Role]*trace.History) {
			for i := range all[gates].Ranks[0] {
				if e := &all[gates].Ranks[0][i]; e.Kind == trace.KindRoutine && e.Unit == "b" {
					e.Unit = "a"
				}
			}
		}, "v", "the gates and loss run: the tally lists a routine twice"},
		{"other routines in a run", "cpu-x", func(all map[contract.Role]*trace.History) {
			for i := range all[gates].Ranks[0] {
				if e := &all[gates].Ranks[0][i]; e.Kind == trace.KindRoutine && e.Unit == "b" {
					e.Unit = "c"
				}
			}
		}, "v", "the gates and loss run lists other routines than the one before"},
		{"a kernel never ran", "cpu-x", drop(func(e trace.Event) bool { return e.Op == "SwiGLU" }), "i", "kernels that never ran: SwiGLU"},
		{"a kernel never ran", "ref", drop(func(e trace.Event) bool { return e.Op == "Hash" }), "i", "kernels that never ran: Hash"},
		{"memory never ran", "cpu-x", drop(func(e trace.Event) bool { return e.Op == "Memory" }), "h", ""},
		{"no family", "cpu-x", func(all map[contract.Role]*trace.History) { delete(all, gates) }, "i", "kernels that never ran: SwiGLU, SwiGLUGrad, LogitsMax, LogitsExpSum, CrossEntropy"},
		{"no drill", "cpu-x", func(all map[contract.Role]*trace.History) { all[gates].Header.Spec = trace.Spec{} }, "i", "gates and loss run: spec"},
	} {
		t.Run(c.name+" "+c.backend, func(t *testing.T) {
			if made[c.backend] == nil {
				made[c.backend] = families(t, c.backend)
			}
			all := clone(made[c.backend])
			if c.do != nil {
				c.do(all)
			}
			if got, says := verdicts(all, 8); got != c.want || !strings.Contains(says, c.says) {
				t.Errorf("%s, want %s and %q:\n%s", got, c.want, c.says, says)
			}
		})
	}
}

// TestEvidence: clause 8 owes every kernel, every routine, and of every run its three
// tallies and, where kernels ran, that one of the routines did.
func TestEvidence(t *testing.T) {
	owed := 2
	for _, f := range kern.Families() {
		if owed += 3; f.Name != "memory" {
			owed += len(f.Kernels) + 1
		}
	}
	if r := results(families(t, "cpu-x"), 8)[0]; r.Expected != owed || r.Saw != owed {
		t.Errorf("saw %d of %d, want %d", r.Saw, r.Expected, owed)
	}
}

// TestWorlds: each rank of a drill owes all that one alone does, and what it has wrong is
// its own.
func TestWorlds(t *testing.T) {
	h := drilled(t, "cpu-x", 7, "SumSquares", "Hash", "HashChanged")
	h.Header.World = 2
	if got, says := verdicts(alone(h), 6, 7); got != "ii" || !strings.Contains(says, "no history of ranks 1 of 2") {
		t.Errorf("%s\n%s", got, says)
	}
	h.Ranks[1] = slices.Clone(h.Ranks[0])
	for i := range h.Ranks[1] {
		h.Ranks[1][i].Rank = 1
	}
	if got, says := verdicts(alone(h), 6, 7); got != "hh" {
		t.Errorf("%s\n%s", got, says)
	}
	h.Origins = map[int]trace.Origin{0: {Backend: "cpu-x", Host: "a"}, 1: {Backend: "cpu-x", Host: "b", Device: "device 3"}}
	e := &h.Ranks[1][first(h, "Hash")]
	e.What, e.Text = trace.Output, "wrong"
	for _, r := range results(alone(h), 6) {
		if len(r.Findings) != 1 || r.Findings[0].Rank != 1 || r.Findings[0].Host != "b" || r.Findings[0].Device != "device 3" {
			t.Errorf("%+v", r.Findings)
		}
	}
	h.Ranks[1] = slices.Delete(h.Ranks[1], first(h, "Hash"), first(h, "Hash")+1)
	if got, says := verdicts(alone(h), 6, 7); got != "ii" {
		t.Errorf("%s\n%s", got, says)
	}
}

// TestWorldsOfTallies: clause 8 wants all of every rank.
func TestWorldsOfTallies(t *testing.T) {
	all := families(t, "cpu-x")
	for _, h := range all {
		h.Header.World = 2
		h.Ranks[1] = slices.Clone(h.Ranks[0])
	}
	if got, says := verdicts(all, 8); got != "h" {
		t.Errorf("%s\n%s", got, says)
	}
	gates := all["gates and loss"]
	gates.Ranks[1] = slices.DeleteFunc(gates.Ranks[1], func(e trace.Event) bool { return e.Op == "SwiGLU" })
	if got, says := verdicts(all, 8); got != "i" || !strings.Contains(says, "kernels that never ran: SwiGLU") {
		t.Errorf("%s\n%s", got, says)
	}
}
