package contracts

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// toy is a contract about runs that do not train: each of two ranks records one
// value per step. Clause 1 wants the ranks' values equal, clause 2 those of the
// control.
type toy struct {
	made atomic.Int64 // runs done
}

// record makes a run of the toy; change edits a rank's events before they count.
func (t *toy) record(ranks, steps int, change func(rank int, e *trace.Event) (keep bool)) suite.Run {
	return suite.Run{Do: func(context.Context, suite.Env) (*trace.History, error) {
		t.made.Add(1)
		var logs []*trace.Log
		for r := range ranks {
			l := &trace.Log{Header: trace.Header{Schema: trace.Schema, Arithmetic: kernels.Arithmetic, Rank: r, World: ranks, Plan: fmt.Sprintf("toy=%d", ranks), Model: "toy"}}
			l.Record(trace.Event{Kind: trace.KindSpan, Step: -1, What: trace.Weight, Count: t.made.Load(), Span: &kernels.Span{}})
			for s := range steps {
				e := trace.Event{Kind: trace.KindScalar, Step: s, What: trace.Loss, Bits: uint32(100 + s)}
				if change == nil || change(r, &e) {
					l.Record(e)
				}
			}
			l.Record(trace.Event{Kind: trace.KindEnd, Step: steps - 1})
			logs = append(logs, l)
		}
		return trace.Merge(logs)
	}}
}

// check compares every rank's values with those of rank 0 of a role.
func check(role contract.Role) func(*contract.Pass) {
	return func(p *contract.Pass) {
		test, ok := p.History(contract.Test)
		want, ok2 := p.History(role)
		if !ok || !ok2 {
			return
		}
		p.Expect(2 * test.Header.World)
		for e := range test.All {
			if e.Kind != trace.KindScalar {
				continue
			}
			p.Saw(1)
			for w := range want.All {
				if w.Rank == 0 && w.Kind == e.Kind && w.Step == e.Step && w.Bits != e.Bits {
					p.Report(contract.Finding{Rank: e.Rank, Step: e.Step, Index: -1, Message: fmt.Sprintf("value %d, want %d", e.Bits, w.Bits)})
				}
			}
		}
	}
}

// wrong changes the value of a rank (-1 for all) in step 1.
func wrong(rank int) func(int, *trace.Event) bool {
	return func(r int, e *trace.Event) bool {
		if (r == rank || rank < 0) && e.Step == 1 {
			e.Bits++
		}
		return true
	}
}

// breaking replaces the test run.
func breaking(r suite.Run) func(*suite.Case) {
	return func(cs *suite.Case) { cs.Runs[contract.Test] = r }
}

func (t *toy) contract() *suite.Suite {
	control := t.record(1, 2, nil)
	control.Key = "control"
	two := func(suite.Options) []suite.Case {
		var out []suite.Case
		for _, name := range []string{"toy a", "toy b"} {
			out = append(out, suite.Case{Name: name, Runs: map[contract.Role]suite.Run{
				contract.Test: t.record(2, 2, nil), contract.Control: control}})
		}
		return out
	}
	clause := func(n int, says string, role contract.Role) *contract.Clause {
		return &contract.Clause{ID: fmt.Sprintf("C-TOY-001.%d", n), Says: says, Class: contract.Exact, Reads: "scalars", Check: check(role)}
	}
	return &suite.Suite{Contract: &contract.Contract{
		ID: "C-TOY-001", Title: "toys agree", Statement: "Toys agree.", Doc: "For tests.",
		Clauses: []*contract.Clause{clause(1, "ranks agree", contract.Test), clause(2, "the run equals its control", contract.Control)},
	}, Cases: two,
		Mutants: []suite.Mutant{
			{ID: "one-rank", Clause: "C-TOY-001.1", On: "toy a", At: suite.At(1, 1, "value"), Says: "rank 1 is wrong", Break: breaking(t.record(2, 2, wrong(1)))},
			{ID: "all-ranks", Clause: "C-TOY-001.2", On: "toy b", At: suite.At(suite.Any, 1, "value"), Says: "both are wrong", Break: breaking(t.record(2, 2, wrong(-1)))},
		},
	}
}

// options are enough to run toys.
func options() Options {
	return Options{
		Options: suite.Options{Level: 1, Text: data.Default()},
		Parts:   launch.Parts{Backend: func(int) (kernels.Backend, error) { return nil, errors.New("toys need no backend") }},
	}
}

// has reports whether any of the strings contains s.
func has(in []string, s string) bool {
	for _, x := range in {
		if strings.Contains(x, s) {
			return true
		}
	}
	return false
}
