package contract_test

import (
	"context"
	"fmt"
	"math"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// finite is a contract of one clause: no rank's loss is an infinity or NaN.
func finite() *contract.Contract {
	return &contract.Contract{ID: "C-FINITE-001", Title: "Losses are finite", Clauses: []*contract.Clause{{
		ID: "C-FINITE-001.1", Says: "Every step's loss is a finite number, on every rank.", Class: contract.Exact, Reads: "losses",
		Check: func(p *contract.Pass) {
			h, ok := p.History(contract.Test)
			if !ok {
				return
			}
			const steps = 2
			p.Expect(steps * h.Header.World) // less than this is never a pass
			for e := range h.All {
				if e.Kind != trace.KindScalar || e.What != trace.Loss {
					continue
				}
				p.Saw(1)
				if x := float64(math.Float32frombits(e.Bits)); math.IsInf(x, 0) || math.IsNaN(x) {
					p.Report(contract.Finding{Rank: e.Rank, Step: e.Step, Index: -1, Got: fmt.Sprint(x), Message: "the loss is not finite"})
				}
			}
		},
	}}}
}

// losses is the history of a trainer that records the loss of each step and
// nothing else: a list per rank.
func losses(ranks ...[]float32) *trace.History {
	var logs []*trace.Log
	for r, steps := range ranks {
		l := &trace.Log{Header: trace.Header{Schema: trace.Schema, Rank: r, World: len(ranks)}}
		for step, x := range steps {
			l.Record(trace.Event{Kind: trace.KindScalar, Step: step, What: trace.Loss, Bits: math.Float32bits(x)})
		}
		l.Record(trace.Event{Kind: trace.KindEnd, Step: len(steps) - 1})
		logs = append(logs, l)
	}
	h, err := trace.Merge(logs)
	if err != nil {
		panic(err)
	}
	return h
}

// Judge applies a contract to histories, whoever recorded them. Evidence that is
// not there makes a clause inconclusive.
func ExampleJudge() {
	for _, h := range []*trace.History{
		losses([]float32{5.5, 5.4}, []float32{5.5, 5.4}),
		losses([]float32{5.5, 5.4}, []float32{5.5, float32(math.Inf(1))}),
		losses([]float32{5.5, 5.4}, []float32{5.5}),
	} {
		evidence := contract.Evidence{Case: "mine", Histories: map[contract.Role]*trace.History{contract.Test: h}}
		results, err := contract.Judge(context.Background(), finite(), []contract.Evidence{evidence})
		if err != nil {
			panic(err)
		}
		for _, r := range results {
			fmt.Println(r.Clause.ID, r.Verdict(), r.Doubts)
			for _, f := range r.Findings {
				fmt.Printf("  rank %d, step %d: %s: %s\n", f.Rank, f.Step, f.Message, f.Got)
			}
		}
	}
	// Output:
	// C-FINITE-001.1 held []
	// C-FINITE-001.1 violated []
	//   rank 1, step 1: the loss is not finite: +Inf
	// C-FINITE-001.1 inconclusive [case mine: saw 3 of 4]
}
