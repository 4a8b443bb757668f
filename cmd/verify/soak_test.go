package main

import (
	"errors"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/report"
)

// repeat soaks for ten minutes with repetitions of a minute, of which number
// last ends as given.
func repeat(last int, verdict contract.Verdict, fail error) (int, *report.Report, error) {
	var clock time.Time
	made := 0
	r, err := soak(10*time.Minute, func() time.Time { return clock }, func(n int) (*report.Report, error) {
		made++
		clock = clock.Add(time.Minute)
		cl := report.Clause{ID: "C-A-001.1", Verdict: contract.Held, Saw: 3, Expected: 3}
		var err error
		if n == last {
			cl.Verdict, err = verdict, fail
		}
		return report.New(report.Environment{}, []report.Contract{{ID: "C-A-001", Clauses: []report.Clause{cl}}}), err
	})
	return made, r, err
}

func TestSoakRepeatsUntilTimeHasPassed(t *testing.T) {
	made, r, err := repeat(-1, contract.Held, nil)
	cl := r.Contracts[0].Clauses[0]
	if err != nil || made != 10 || r.Environment.Repetitions != 10 || cl.Saw != 30 || cl.Expected != 30 || r.Verdict != contract.Held {
		t.Errorf("%d repetitions, %v: %+v", made, err, r)
	}
}

func TestSoakStopsAtTheFirstViolation(t *testing.T) {
	for _, v := range []contract.Verdict{contract.Violated, contract.Inconclusive} {
		if made, r, err := repeat(3, v, nil); err != nil || made != 4 || r.Verdict != v {
			t.Errorf("%s: %d repetitions, %v, %s", v, made, err, r.Verdict)
		}
	}
	lost := errors.New("device lost")
	if made, r, err := repeat(2, contract.Held, lost); !errors.Is(err, lost) || made != 3 || r.Environment.Repetitions != 3 {
		t.Errorf("%d repetitions, %v, %+v", made, err, r)
	}
}
