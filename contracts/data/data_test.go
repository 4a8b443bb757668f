package data_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/contracttest/transcript"
	"github.com/lockstep-ml/lockstep/contracts/data"
	"github.com/lockstep-ml/lockstep/contracts/independent"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// text makes 9 sequences of 4 predictions each, and the last one of 2: a step takes
// 4 of them.
const text = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklm"

// rows are the sequences that a micro-batch of the text holds, by hand: sequence
// i's tokens begin at byte 4i.
func rows(ids ...int) (d kernels.Digest, count int64) { return blanked(-1, ids...) }

// blanked leaves the targets of one sequence out.
func blanked(blank int, ids ...int) (d kernels.Digest, count int64) {
	var sum independent.Digest
	for at, id := range ids {
		tokens, targets := make([]int32, 4), []int32{-1, -1, -1, -1}
		for j := range 4 {
			if i := 4*id + j; id >= 0 && i+1 < len(text) {
				tokens[j] = int32(text[i])
				if id%4 != blank {
					targets[j] = int32(text[i+1])
					count++
				}
			}
		}
		sum.AddIntegers(trace.Tokens, 4*at, tokens)
		sum.AddIntegers(trace.Targets, 4*at, targets)
	}
	return kernels.Digest{A: sum.A, B: sum.B}, count
}

// run is a history by hand of 3 steps of a plan: micros[rank][step] lists the
// micro-batches of a rank, each its worker and then its ids.
func run(t *testing.T, p string, groups int, policy string, micros [][][][]int) *trace.History {
	t.Helper()
	cfg, err := spec.Preset("nano")
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Plan, err = plan.Parse(p); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(text))
	cfg.Model.Layers, cfg.Model.SeqLen, cfg.Model.Groups.Data, cfg.Sequences, cfg.Steps = 1, 4, groups, 4, 3
	cfg.TextHash = hex.EncodeToString(sum[:])
	blank := -1
	switch policy {
	case "pad":
		cfg.LastStep = "pad"
	case "blank":
		cfg.Blank, blank = []int{1}, 1
	}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	h := &trace.History{Ranks: map[int][]trace.Event{}, Header: trace.Header{Schema: trace.Schema, Arithmetic: kernels.Arithmetic,
		World: len(micros), Plan: cfg.Plan.String(), Model: "nano", Backend: "none", Spec: cfg.Recorded()}}
	valid := [3]int64{16, 16, 16}
	switch policy {
	case "pad":
		valid[2] = 4 + 2
	case "blank":
		valid = [3]int64{12, 12, 12}
	}
	for rank, steps := range micros {
		for step, list := range steps {
			for i, m := range list {
				d, n := blanked(blank, m[1:]...)
				var ids []int64
				for _, id := range m[1:] {
					ids = append(ids, int64(id))
				}
				h.Ranks[rank] = append(h.Ranks[rank], trace.Event{Kind: trace.KindData, Rank: rank, Step: step, Worker: m[0], Micro: i, IDs: ids, Count: n, Digest: &d})
			}
			h.Ranks[rank] = append(h.Ranks[rank], trace.Event{Kind: trace.KindTokens, Rank: rank, Step: step, Count: valid[step]})
		}
	}
	return h
}

// texts opens the text of the runs.
func texts(string) ([]byte, error) { return []byte(text), nil }

// verdicts are what the clauses came to, as letters: h, v, i; and all that they
// say.
func verdicts(h *trace.History, e contract.Evidence) (letters, says string) {
	e.Case, e.Histories = "by hand", map[contract.Role]*trace.History{contract.Test: transcript.Ended(h)}
	results, err := contract.Judge(context.Background(), data.Contract(), []contract.Evidence{e})
	if err != nil {
		panic(err) // nothing ends that context
	}
	for _, r := range results {
		letters += r.Verdict().String()[:1]
		for _, f := range r.Findings {
			says += fmt.Sprintf("%s rank %d, step %d: got %s, want %s: %s\n", r.Clause.ID, f.Rank, f.Step, f.Got, f.Want, f.Message)
		}
		says += strings.Join(r.Doubts, "\n")
	}
	return letters, says
}

// pairs is two ranks with one of two workers each, a sequence a micro-batch.
func pairs(t *testing.T) *trace.History {
	return run(t, "dp=2,microbatches=2", 2, "drop", [][][][]int{
		{{{0, 0}, {0, 2}}, {{0, 4}, {0, 6}}, {{0, 0}, {0, 2}}},
		{{{1, 1}, {1, 3}}, {{1, 5}, {1, 7}}, {{1, 1}, {1, 3}}},
	})
}

// TestShares: what every kind of plan gives its ranks, over the end of the text.
func TestShares(t *testing.T) {
	for name, h := range map[string]*trace.History{
		"a worker a rank": pairs(t),
		"padded": run(t, "dp=2,microbatches=1", 2, "pad", [][][][]int{
			{{{0, 0, 2}}, {{0, 4, 6}}, {{0, 8, -1}}},
			{{{1, 1, 3}}, {{1, 5, 7}}, {{1, 9, -1}}},
		}),
		"two workers a rank": run(t, "dp=1,microbatches=2", 2, "drop", [][][][]int{
			{{{0, 0, 2}, {1, 1, 3}}, {{0, 4, 6}, {1, 5, 7}}, {{0, 0, 2}, {1, 1, 3}}},
		}),
		"groups that dp does not divide": run(t, "dp=3,microbatches=1", 2, "drop", [][][][]int{
			{{{0, 0, 3}}, {{0, 4, 7}}, {{0, 0, 3}}}, {{{1, 1}}, {{1, 5}}, {{1, 1}}}, {{{2, 2}}, {{2, 6}}, {{2, 2}}},
		}),
		"sharded": run(t, "dp=2,zero=2,microbatches=2", 4, "drop", [][][][]int{
			{{{0, 0}, {2, 2}}, {{0, 4}, {2, 6}}, {{0, 0}, {2, 2}}},
			{{{1, 1}, {3, 3}}, {{1, 5}, {3, 7}}, {{1, 1}, {3, 3}}},
		}),
		"replicated": run(t, "dp=2,microbatches=2", 4, "drop", [][][][]int{
			{{{0, 0}, {1, 1}}, {{0, 4}, {1, 5}}, {{0, 0}, {1, 1}}},
			{{{2, 2}, {3, 3}}, {{2, 6}, {3, 7}}, {{2, 2}, {3, 3}}},
		}),
		"replicated weights": run(t, "dp=2,zero=1,microbatches=2", 4, "drop", [][][][]int{
			{{{0, 0}, {1, 1}}, {{0, 4}, {1, 5}}, {{0, 0}, {1, 1}}},
			{{{2, 2}, {3, 3}}, {{2, 6}, {3, 7}}, {{2, 2}, {3, 3}}},
		}),
		"a position to be ignored": run(t, "dp=2,microbatches=1", 2, "blank", [][][][]int{
			{{{0, 0, 2}}, {{0, 4, 6}}, {{0, 0, 2}}},
			{{{1, 1, 3}}, {{1, 5, 7}}, {{1, 1, 3}}},
		}),
		"stages": run(t, "pp=1,tp=2,dp=1,microbatches=2", 2, "drop", [][][][]int{
			{{{0, 0, 2}, {1, 1, 3}}, {{0, 4, 6}, {1, 5, 7}}, {{0, 0, 2}, {1, 1, 3}}},
			{{{0, 0, 2}, {1, 1, 3}}, {{0, 4, 6}, {1, 5, 7}}, {{0, 0, 2}, {1, 1, 3}}},
		}),
	} {
		if got, says := verdicts(h, contract.Evidence{Texts: texts}); got != "hhhh" {
			t.Errorf("%s: %s, want all held\n%s", name, got, says)
		}
	}
}

// TestEdits: one thing in a history is another, and the clauses about it say so.
func TestEdits(t *testing.T) {
	other, _ := rows(5)
	odd, _ := rows(6)
	odd.NonFinite = 1
	for _, c := range []struct {
		name string
		do   func(events []trace.Event) []trace.Event // of rank 0, step 1 from 3 on: micro-batches 0 and 1, tokens
		want string
		says string
	}{
		{"nothing", func(x []trace.Event) []trace.Event { return x }, "hhhh", ""},
		{"ids exchanged", func(x []trace.Event) []trace.Event { x[3].IDs, x[4].IDs = x[4].IDs, x[3].IDs; return x }, "vhhh", "got [6 4], want [4 6]: logical worker 0 on rank 0"},
		{"an id", func(x []trace.Event) []trace.Event { x[4].IDs = []int64{2}; return x }, "vhhh", "got [4 2], want [4 6]"},
		{"a worker", func(x []trace.Event) []trace.Event { x[3].Worker = 1; return x }, "vvhh", ".2 rank 0, step 1: got 1, want 0: micro-batch 0 of rank 0 is of another"},
		{"a sequence more", func(x []trace.Event) []trace.Event { x[4].IDs = []int64{6, 8}; return x }, "vvhh", ".2 rank 0, step 1: got 2, want 1: micro-batch 1 of rank 0, of logical worker 0, has another number"},
		{"moved", func(x []trace.Event) []trace.Event { x[3].IDs, x[4].IDs = []int64{4, 6}, nil; return x }, "hvhh", "got 2, want 1: micro-batch 0"},
		{"twice", func(x []trace.Event) []trace.Event { return slices.Insert(x, 4, x[3]) }, "hvhh", "got 2, want 1: micro-batch 0 of rank 0 is there 2 times"},
		{"twice and another", func(x []trace.Event) []trace.Event {
			y := x[3]
			y.Digest, y.Count = &other, 1
			return slices.Insert(x, 4, y)
		}, "hvhh", "is there 2 times"},
		{"a count in place of another's", func(x []trace.Event) []trace.Event { x[8].Step = 1; return x }, "hhhi", "saw 17 of 18"},
		{"one more", func(x []trace.Event) []trace.Event { m := x[4]; m.Micro = 2; return append(x, m) }, "hvhh", "got 2, want 1: rank 0 has a micro-batch beyond"},
		{"not there", func(x []trace.Event) []trace.Event { return slices.Delete(x, 3, 4) }, "iiii", "saw 11 of 12"},
		{"of another step", func(x []trace.Event) []trace.Event { x[3].Step = 3; return x }, "iiii", "rank 0 recorded a data event in step 3, of steps 0 to 2"},
		{"digest", func(x []trace.Event) []trace.Event { x[3].Digest = &other; return x }, "hhvh", "micro-batch 0 of rank 0, of logical worker 0, has other tokens or targets than the text (sequences [4])"},
		{"half a digest", func(x []trace.Event) []trace.Event { d := *x[3].Digest; d.A = other.A; x[3].Digest = &d; return x }, "hhvh", "sequences [4]"},
		{"half another", func(x []trace.Event) []trace.Event { d := *x[3].Digest; d.B = other.B; x[3].Digest = &d; return x }, "hhvh", "sequences [4]"},
		{"not numbers", func(x []trace.Event) []trace.Event { x[4].Digest = &odd; return x }, "hhvh", "sequences [6]"},
		{"no digest", func(x []trace.Event) []trace.Event { x[4].Digest = nil; return x }, "hhih", "saw 11 of 12"},
		{"count", func(x []trace.Event) []trace.Event { x[4].Count = 3; return x }, "hhhv", "got 3, want 4: micro-batch 1 of rank 0, of logical worker 0, counts"},
		{"count of the batch", func(x []trace.Event) []trace.Event { x[5].Count = 8; return x }, "hhhv", "got 8, want 16: rank 0 counts other valid tokens in the global batch"},
		{"no count of the batch", func(x []trace.Event) []trace.Event { return slices.Delete(x, 5, 6) }, "hhhi", "saw 17 of 18"},
		{"twice a count", func(x []trace.Event) []trace.Event { y := x[5]; y.Count = 1; return append(x, y) }, "hhhv", "got 1, want 16"},
		{"resumed", func(x []trace.Event) []trace.Event {
			x[0].IDs, x[1].Worker, x[1].Count = []int64{9}, 1, 2 // before it goes on
			return append(x, trace.Event{Kind: trace.KindResume, Step: 1, Count: 1})
		}, "hhhh", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := pairs(t)
			h.Ranks[0] = c.do(h.Ranks[0])
			if c.name == "resumed" { // all ranks are
				h.Ranks[1] = append(h.Ranks[1], trace.Event{Kind: trace.KindResume, Rank: 1, Step: 1, Count: 1})
			}
			got, says := verdicts(h, contract.Evidence{Texts: texts})
			if got != c.want || !strings.Contains(says, c.says) {
				t.Errorf("%s, want %s and %q:\n%s", got, c.want, c.says, says)
			}
		})
	}
}

// TestWorkersOfARank: each of a rank's workers is judged, also where it has one
// micro-batch.
func TestWorkersOfARank(t *testing.T) {
	h := run(t, "dp=1,microbatches=2", 2, "drop", [][][][]int{{{{0, 0, 2}, {1, 1, 3}}, {{0, 4, 6}, {1, 5, 7}}, {{0, 0, 2}, {1, 1, 3}}}})
	h.Ranks[0][4].IDs = []int64{7, 5}
	wrong := func(want string) {
		t.Helper()
		if got, says := verdicts(h, contract.Evidence{Texts: texts}); got != "vhhh" || !strings.Contains(says, want) {
			t.Errorf("%s, want %q\n%s", got, want, says)
		}
	}
	wrong("step 1: got [7 5], want [5 7]: logical worker 1")
	h.Ranks[0][0].IDs = []int64{0, 4}
	wrong("step 0: got [0 4], want [0 2]: logical worker 0")
}

// TestOtherTexts: what is not the text of the run is none to compare with, and a run
// that was just given it is wrong.
func TestOtherTexts(t *testing.T) {
	fails := func(string) ([]byte, error) { return nil, errors.New("gone") }
	other := func(string) ([]byte, error) { return []byte(text + "x"), nil }
	for _, c := range []struct {
		name, want, says string
		e                contract.Evidence
	}{
		{"none", "iiii", "no training text", contract.Evidence{}},
		{"gone", "iiii", "gone", contract.Evidence{Texts: fails, Fresh: true}},
		{"another", "iiii", "text default has 40 bytes with SHA-256", contract.Evidence{Texts: other}},
		{"another, now", "iivi", "the run was given other bytes than text default has, which are 40", contract.Evidence{Texts: other, Fresh: true}},
		{"the same, now", "hhhh", "", contract.Evidence{Texts: texts, Fresh: true}},
	} {
		if got, says := verdicts(pairs(t), c.e); got != c.want || !strings.Contains(says, c.says) {
			t.Errorf("%s: %s, want %s and %q:\n%s", c.name, got, c.want, c.says, says)
		}
	}
}

// TestTextsThatMakeNoStep: a text with too few sequences gives no verdict.
func TestTextsThatMakeNoStep(t *testing.T) {
	h := pairs(t)
	cfg, err := spec.Of(h.Header.Spec)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte("AB"))
	cfg.TextHash = hex.EncodeToString(sum[:])
	h.Header.Spec = cfg.Recorded()
	if got, says := verdicts(h, contract.Evidence{Texts: func(string) ([]byte, error) { return []byte("AB"), nil }}); got != "iiii" || !strings.Contains(says, "too few for a step") {
		t.Errorf("%s: %s", got, says)
	}
}
