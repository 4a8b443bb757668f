package contract_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

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
	for _, r := range contract.Judge(c, evidence) {
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
	contract.Judge(c, []contract.Evidence{{Case: "a"}})
}
