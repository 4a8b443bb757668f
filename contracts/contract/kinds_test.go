package contract

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// judged is what a clause of a phase makes of findings.
func judged(phase Phase, findings ...Finding) Result {
	c := &Contract{Clauses: []*Clause{{ID: "C-X-001.1", Phase: phase, Check: func(p *Pass) {
		for _, f := range findings {
			p.Report(f)
		}
	}}}}
	all, err := Judge(context.Background(), c, []Evidence{{Case: "a"}})
	if err != nil {
		panic(err) // nothing ends that context
	}
	return all[0]
}

// TestEarliestFirst: findings come by step and phase, rules before comparisons, then
// in the order of the computation and of the reports; the initial state before all
// steps, what is drilled before that, what says nothing of its phase last.
func TestEarliestFirst(t *testing.T) {
	in := []Finding{
		{Message: "drill", Step: 3, Phase: Drilled},
		{Message: "begin", Step: -1},
		{Message: "batch", Phase: Data},
		{Message: "pass", Phase: Forward, Order: 1},
		{Message: "late pass", Phase: Forward, Order: 2},
		{Message: "other pass", Phase: Forward, Against: Control},
		{Message: "sum", Phase: Reduction},
		{Message: "clause's own"},
		{Message: "next", Step: 1, Phase: Data},
		{Message: "hash", Step: -1, Against: Golden},
	}
	var want []string
	for _, f := range in[:maxFindings] {
		want = append(want, f.Message)
	}
	for seed := range uint64(50) {
		mixed := slices.Clone(in)
		rand.New(rand.NewPCG(seed, 1)).Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
		r := judged(Update, mixed...)
		var got []string
		for _, f := range r.Findings {
			got = append(got, f.Message)
		}
		if d := cmp.Diff(want, got); d != "" || r.Total != len(in) {
			t.Fatalf("seed %d, %d in all:\n%s", seed, r.Total, d)
		}
	}
	if f := judged(Unphased, Finding{Message: "says nothing"}, Finding{Message: "update", Phase: Update}).Findings; f[0].Message != "update" {
		t.Errorf("first is %q", f[0].Message)
	}
}

// TestFirstOfEachKind: of findings that say the same of other places the earliest is
// kept, with how many more there are and on which ranks.
func TestFirstOfEachKind(t *testing.T) {
	var all []Finding
	for step := 4; step >= 0; step-- {
		for rank := range 20 {
			all = append(all, Finding{Rank: rank, Step: step, Message: fmt.Sprintf("weight on rank %d differs, ranks [%d 1]", rank, rank)})
		}
	}
	all = append(all, Finding{Rank: 3, Step: 2, Message: "m on rank 3 differs"})
	r := judged(Update, all...)
	if len(r.Findings) != 2 || r.Total != 101 || !slices.Equal(r.Cases, []string{"a"}) {
		t.Fatalf("%+v", r)
	}
	f := r.Findings[0]
	if f.Step != 0 || f.Rank != 0 || f.More != 99 || len(f.Ranks) != maxRanks || f.Ranks[1] != 1 {
		t.Errorf("first of the kind: %+v", f)
	}
	if f = r.Findings[1]; f.More != 0 || f.Ranks != nil {
		t.Errorf("the only one: %+v", f)
	}
	both := Join(r.Findings, []Finding{{Case: "b", Rank: 2, Step: -1, Phase: Update, Message: "m on rank 2 differs"}})
	if len(both) != 2 || both[0].Case != "b" || both[0].More != 1 || !slices.Equal(both[0].Ranks, []int{2, 3}) {
		t.Errorf("joined: %+v", both)
	}
}

// TestPhases: words and back.
func TestPhases(t *testing.T) {
	for i, word := range Phases() {
		var p Phase
		if err := p.UnmarshalText([]byte(word)); err != nil || p != Phase(i+1) || p.String() != word {
			t.Errorf("%s: %v, %v", word, p, err)
		}
	}
	if err := new(Phase).UnmarshalText([]byte("lunch")); err == nil {
		t.Error("lunch is a phase")
	}
}
