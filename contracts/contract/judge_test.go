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

// TestJudgePanics: the caller sees a clause's panic, and can recover.
func TestJudgePanics(t *testing.T) {
	c := &contract.Contract{Clauses: []*contract.Clause{{ID: "C-X-001.1", Check: func(*contract.Pass) { panic("no such tensor") }}}}
	defer func() {
		if p := fmt.Sprint(recover()); !strings.Contains(p, "no such tensor") || !strings.Contains(p, "judge_test.go") {
			t.Errorf("recovered %q, want the panic and where it was", p)
		}
	}()
	_, err := contract.Judge(t.Context(), c, []contract.Evidence{{Case: "a"}})
	t.Errorf("no panic, %v", err)
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
