package suite_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/contracttest"
	formulas "github.com/lockstep-ml/lockstep/contracts/formulas/suite"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// late are the default cases that begin at a late step.
func late(o suite.Options) (out []suite.Case) {
	for _, c := range formulas.Suite().Cases(o) {
		if strings.Contains(c.Name, "from step") {
			out = append(out, c)
		}
	}
	return out
}

// Late cases go on from a state that is not the initial one, with a counter that is not
// the step, up to the last step that a run may have; between them their rates rise, stay,
// fall, and have ended, and some end on the way.
func TestLateCases(t *testing.T) {
	var r contracttest.Runner
	seen, farthest := map[string]int{}, 0
	for _, cs := range late(contracttest.Options()) {
		e, err := r.Evidence(t, cs)
		if err != nil {
			t.Fatal(err)
		}
		o := cs.Runs[contract.Test].Config.Optimizer
		h := e.Histories[contract.Test]
		first, moved, rates := 0, false, []float64{}
		for ev := range h.All {
			switch {
			case ev.Kind == trace.KindResume:
				if first = ev.Step; int(ev.Count) >= first || first < 100 {
					t.Errorf("%s: goes on at step %d after %d of the optimizer's", cs.Name, first, ev.Count)
				}
			case ev.Kind == trace.KindDigest && ev.What == trace.Weight && ev.Step == first-1 && ev.Tensor == "model.norm.weight":
				moved = ev.Data[0] != 1
			case ev.Kind == trace.KindScalar && ev.What == trace.LR:
				rates = append(rates, float64(ev.Value))
				farthest = max(farthest, ev.Step)
			}
		}
		if len(rates) != 4 || !moved {
			t.Errorf("%s: %d steps, weights that moved: %v", cs.Name, len(rates), moved)
			continue
		}
		switch a, b := rates[0], rates[3]; {
		case a < b:
			seen["rises"]++
		case a > b && b == o.MinLR:
			seen["ends"]++
		case a > b:
			seen["falls"]++
		case a == o.MinLR:
			seen["ended"]++
		}
	}
	for _, what := range []string{"rises", "falls", "ends", "ended"} {
		if seen[what] == 0 {
			t.Errorf("no late case whose rate %s: %v", what, seen)
		}
	}
	if farthest != spec.MaxSteps-1 {
		t.Errorf("the last step that is judged is %d, want %d", farthest, spec.MaxSteps-1)
	}
}

// Steps that are asked for make late cases longer, and not another case.
func TestLateCasesTakeTheStepsAskedFor(t *testing.T) {
	o := contracttest.Options()
	o.Steps = 9
	for _, cs := range late(o) {
		cfg := cs.Runs[contract.Test].Config
		if want := 9; !strings.Contains(cs.Name, "1073741820") && !strings.HasSuffix(cs.Name, suite.Later{Step: cfg.Steps - want}.Suffix()) {
			t.Errorf("%s ends after step %d", cs.Name, cfg.Steps)
		}
	}
}

// Past a horizon with a rate of 0 no weight moves, and that is evidence: moments do.
func TestStepsPastTheHorizonAreJudged(t *testing.T) {
	var r contracttest.Runner
	o := contracttest.Options()
	o.Steps = 24
	cs, ok := formulas.Suite().Find(o, "nano adamw")
	if !ok {
		t.Fatal("no such case")
	}
	if c := cs.Runs[contract.Test].Config.Optimizer; c.MinLR != 0 || c.Horizon >= o.Steps {
		t.Fatalf("the rate does not end: %+v", c)
	}
	r.Held(t, formulas.Suite(), []suite.Case{cs})
	// A weight that goes on moving there is named, by a part of the rate before.
	e, err := r.Evidence(t, cs)
	if err != nil {
		t.Fatal(err)
	}
	bad := contracttest.Edit(e, contract.Test, func(_ int, events []trace.Event) []trace.Event {
		for i, ev := range events {
			if ev.Kind == trace.KindDigest && ev.What == trace.Weight && ev.Step == 22 && ev.Tensor == "model.norm.weight" {
				data := slices.Clone(ev.Data)
				data[3] -= 1e-6
				events[i].Data = data
			}
		}
		return events
	})
	if res := contracttest.Verdicts(formulas.Suite(), bad)["4"]; res.Verdict() != contract.Violated || res.Findings[0].Step != 22 {
		t.Errorf("%s, %d findings", res.Verdict(), res.Total)
		contracttest.Log(t, res)
	}
}
