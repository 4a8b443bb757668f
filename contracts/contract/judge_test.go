package contract_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/contracts/contract"
)

// TestJudgeSideBySide: results come in the contract's order and findings in that
// of the evidence, whatever ends first; clauses do run at the same time.
func TestJudgeSideBySide(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	var both sync.WaitGroup
	both.Add(2)
	c := &contract.Contract{ID: "C-X-001"}
	for i := range 3 {
		c.Clauses = append(c.Clauses, &contract.Clause{ID: fmt.Sprintf("C-X-001.%d", i+1), Check: func(p *contract.Pass) {
			if p.Case == "a" && i < 2 { // each waits for the other
				both.Done()
				both.Wait()
			}
			p.Expect(1)
			p.Saw(1)
			p.Report(contract.Finding{Message: fmt.Sprint(i, p.Case)})
		}})
	}
	evidence := []contract.Evidence{{Case: "a"}, {Case: "b"}, {Case: "c", Clauses: []string{"C-X-001.2"}}}
	got := ""
	results, err := contract.Judge(t.Context(), c, evidence)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		got += r.Clause.ID + fmt.Sprint(" ", r.Saw, r.Expected, r.Total)
		for _, f := range r.Findings {
			got += " " + f.Message
		}
		got += "\n"
	}
	if want := "C-X-001.1 2 2 2 0a 0b\nC-X-001.2 3 3 3 1a 1b 1c\nC-X-001.3 2 2 2 2a 2b\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// A clause that panics on a piece of evidence is inconclusive, says where, and keeps
// what it found; others are judged.
func TestClausesThatPanic(t *testing.T) {
	c := &contract.Contract{Clauses: []*contract.Clause{
		{ID: "C-X-001.1", Check: func(p *contract.Pass) {
			p.Expect(1)
			p.Saw(1)
			if p.Case == "b" {
				panic("no such tensor")
			}
		}},
		{ID: "C-X-001.2", Check: func(p *contract.Pass) { p.Expect(1); p.Saw(1) }},
		{ID: "C-X-001.3", Check: func(p *contract.Pass) { p.Report(contract.Finding{}); panic("too late") }},
	}}
	r, err := contract.Judge(t.Context(), c, []contract.Evidence{{Case: "a"}, {Case: "b"}})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []contract.Verdict{contract.Inconclusive, contract.Held, contract.Violated} {
		if got := r[i].Verdict(); got != want || (len(r[i].Panics) > 0) != (i != 1) {
			t.Errorf("clause %d: %s, want %s: %v", i+1, got, want, r[i].Panics)
		}
	}
	if s := fmt.Sprint(r[0].Panics, r[0].Doubts); strings.Count(s, "panic: no such tensor, in contract_test.") != 2 || !strings.Contains(s, "(judge_test.go:") || !strings.Contains(s, "case b") {
		t.Errorf("it does not say where: %s", s)
	}
}

// TestJudgeEnds: when its context ends so does a judgement, with the context's
// cause, whether a clause goes through evidence without end or never asks for any.
func TestJudgeEnds(t *testing.T) {
	over := errors.New("time is over")
	stopped, release := make(chan bool, 1), make(chan bool)
	defer close(release)
	for name, check := range map[string]func(*contract.Pass){
		"evidence without end": func(p *contract.Pass) {
			defer func() { stopped <- true }()
			for {
				p.Found(true)
			}
		},
		"no evidence": func(*contract.Pass) { <-release },
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(20*time.Millisecond, func() { cancel(over) })
		c := &contract.Contract{Clauses: []*contract.Clause{{ID: "C-X-001.1", Check: check}}}
		if r, err := contract.Judge(ctx, c, []contract.Evidence{{Case: "a"}, {Case: "b"}}); r != nil || !errors.Is(err, over) {
			t.Errorf("%s: %v, %v; want the cause", name, r, err)
		}
	}
	select {
	case <-stopped:
	case <-time.After(10 * time.Second):
		t.Error("a clause goes on although nobody waits for it")
	}
}
