package bounded_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/bounded"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/contracttest"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
)

const (
	embed = "model.embed_tokens.weight"
	final = "model.norm.weight"
)

// recorded is a short run on a plan, two steps, with every element.
func recorded(t *testing.T, r *contracttest.Runner, on string) contract.Evidence {
	t.Helper()
	o := contracttest.Options()
	cfg, err := suite.Preset("nano", o, 2)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Plan, err = plan.Parse(on); err != nil {
		t.Fatal(err)
	}
	cfg.Model.Layers, cfg.Model.SeqLen, cfg.Sequences, cfg.Recording.Capture = 1, 7, 3, true
	e, err := r.Evidence(t, suite.Case{Name: on, Runs: map[contract.Role]suite.Run{contract.Test: suite.Train(cfg, o)}})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// judge judges a run by Judge alone.
func judge(e contract.Evidence, names func(string) bool) contract.Result {
	c := &contract.Contract{ID: "C-X-001", Clauses: []*contract.Clause{{ID: "C-X-001.1", Class: contract.Bound, Check: func(p *contract.Pass) {
		if r, ok := evidence.Read(p, contract.Test); ok {
			bounded.Judge(p, r, names)
		}
	}}}}
	return contracttest.Judge(c, []contract.Evidence{e})[0]
}

// edit is a change of the events of one rank and step that are about something.
type edit struct {
	rank, step   int
	what, tensor string
	change       func(*trace.Event)
}

// of applies the edit to evidence; it must find an event.
func (x edit) of(t *testing.T, e contract.Evidence) contract.Evidence {
	t.Helper()
	n := 0
	out := contracttest.Edit(e, contract.Test, func(rank int, events []trace.Event) []trace.Event {
		for i := range events {
			if ev := &events[i]; rank == x.rank && ev.Step == x.step && ev.What == x.what && ev.Tensor == x.tensor && (ev.Kind == trace.KindDigest || ev.Kind == trace.KindScalar) {
				x.change(ev)
				n++
			}
		}
		return events
	})
	if n == 0 {
		t.Fatalf("rank %d recorded no %s of %q in step %d", x.rank, x.what, x.tensor, x.step)
	}
	return out
}

// element changes the first captured element.
func element(f func(float32) float32) func(*trace.Event) {
	return func(e *trace.Event) {
		e.Data = append(trace.Floats(nil), e.Data...)
		e.Data[0] = f(e.Data[0])
	}
}

func next(x float32) float32 { return math.Nextafter32(x, 1) }
func more(x float32) float32 { return x + 1 }
func nan(float32) float32    { return float32(math.NaN()) }

// TestJudgeFindsWhatIsWrong: of replicas, whose every number is judged, each
// wrong one is found where it is, and nothing else is.
func TestJudgeFindsWhatIsWrong(t *testing.T) {
	var r contracttest.Runner
	e := recorded(t, &r, "dp=3")
	if res := judge(e, nil); res.Verdict() != contract.Held || res.Saw == 0 || !(res.MaxRatio > 0 && res.MaxRatio <= 1) {
		t.Fatalf("%s, saw %d of %d, error / bound %v, doubts %q, findings %+v", res.Verdict(), res.Saw, res.Expected, res.MaxRatio, res.Doubts, res.Findings)
	}
	for name, c := range map[string]struct {
		edit
		says string
	}{
		"loss":                {edit{2, 1, trace.Loss, "", func(e *trace.Event) { e.Value *= 1.001 }}, "the loss of rank 2 lies outside the bound"},
		"loss that is none":   {edit{0, 0, trace.Loss, "", func(e *trace.Event) { e.Value = trace.Float(math.NaN()) }}, "the loss of rank 0 lies outside the bound"},
		"gradient":            {edit{1, 1, trace.Grad, final, element(more)}, "the reduced gradient of rank 1 lies outside the bound"},
		"gradient of none":    {edit{1, 1, trace.Grad, embed, element(nan)}, "the reduced gradient of rank 1 lies outside the bound"},
		"weight":              {edit{0, 1, trace.Weight, embed, element(next)}, "weight of rank 0 is not what the optimizer makes"},
		"moment":              {edit{2, 1, trace.MomentV, final, element(next)}, "v of rank 2 is not what the optimizer makes"},
		"weight that it used": {edit{1, 0, trace.Weight, final, element(more)}, "weight of rank 1 is not what the optimizer makes"},
		"steps taken":         {edit{1, 0, trace.Counter, "", func(e *trace.Event) { e.Value++ }}, "of rank 1 is not what the optimizer makes"},
	} {
		res := judge(c.of(t, e), nil)
		if res.Verdict() != contract.Violated || len(res.Findings) == 0 {
			t.Errorf("%s: %s, doubts %q", name, res.Verdict(), res.Doubts)
			continue
		}
		f := res.Findings[0]
		if !strings.Contains(f.Message, c.says) || f.Rank != c.rank {
			t.Errorf("%s: rank %d: %s, want %q", name, f.Rank, f.Message, c.says)
		}
		for _, f := range res.Findings {
			if f.Rank != c.rank || f.Step < c.step {
				t.Errorf("%s: found on rank %d in step %d too: %s", name, f.Rank, f.Step, f.Message)
			}
		}
	}
}

// TestJudgeLooksAtWhatIsNamed: of the other parameters only what enters the
// gradients of the named ones matters. Elements beside another's squares are damage all
// the same, and hold nothing.
func TestJudgeLooksAtWhatIsNamed(t *testing.T) {
	var r contracttest.Runner
	e := recorded(t, &r, "dp=3")
	for step, want := range []contract.Verdict{contract.Violated, contract.Inconclusive} {
		wrong := edit{1, step, trace.Weight, final, element(more)}.of(t, e)
		if res := judge(wrong, func(n string) bool { return n == embed }); res.Verdict() != want {
			t.Errorf("another parameter's weight is wrong after step %d: %s, want %s", step, res.Verdict(), want)
		}
	}
}

// TestCopiesAgree: of the copies of a slice in one replica the oracle judges the
// first; the others must be equal to it.
func TestCopiesAgree(t *testing.T) {
	var r contracttest.Runner
	e := recorded(t, &r, "tp=2")
	if res := judge(e, nil); res.Verdict() != contract.Held {
		t.Fatalf("%s, doubts %q, findings %+v", res.Verdict(), res.Doubts, res.Findings)
	}
	for _, what := range []string{trace.Grad, trace.Weight, trace.MomentM, trace.MomentV} {
		res := judge(edit{1, 1, what, final, func(e *trace.Event) {
			d := *e.Digest
			d.A++
			e.Digest = &d
		}}.of(t, e), nil)
		if res.Verdict() != contract.Violated || len(res.Findings) != 1 || !strings.Contains(res.Findings[0].Message, what+" of rank 1 differs from that of rank 0") || res.Findings[0].Tensor != final {
			t.Errorf("%s: %s, %+v", what, res.Verdict(), res.Findings)
		}
	}
}

// odd is an oracle that answers oddly.
type odd struct {
	contract.Oracle
	gradient func(map[string]contract.Bounded) (map[string]contract.Bounded, error)
	update   error
}

func (o odd) Gradient(cfg spec.Config, step int, weights map[string][]float32) (map[string]contract.Bounded, error) {
	out, err := o.Oracle.Gradient(cfg, step, weights)
	if err != nil || o.gradient == nil {
		return out, err
	}
	own := map[string]contract.Bounded{} // the oracle keeps its answers
	for name, b := range out {
		own[name] = b
	}
	return o.gradient(own)
}

func (o odd) Update(cfg spec.Config, taken int, before contract.State, grad map[string][]float32) (contract.State, error) {
	if o.update != nil {
		return nil, o.update
	}
	return o.Oracle.Update(cfg, taken, before, grad)
}

// TestJudgeDoubts: what cannot be judged is neither held nor violated.
func TestJudgeDoubts(t *testing.T) {
	var r contracttest.Runner
	e := recorded(t, &r, "dp=3")
	lame, blind := errors.New("no update"), errors.New("no gradient")
	answers := func(name string, b contract.Bounded) odd {
		return odd{Oracle: e.Oracle, gradient: func(m map[string]contract.Bounded) (map[string]contract.Bounded, error) {
			m[name] = b
			return m, nil
		}}
	}
	infinite := contract.Bounded{Value: []float64{0}, Bound: []float64{math.Inf(1)}}
	for says, o := range map[string]contract.Oracle{
		"no oracle to judge the gradient by":     nil,
		lame.Error():                             odd{Oracle: e.Oracle, update: lame},
		blind.Error():                            odd{Oracle: e.Oracle, gradient: func(map[string]contract.Bounded) (map[string]contract.Bounded, error) { return nil, blind }},
		"the oracle has 0 elements of " + final:  answers(final, contract.Bounded{Bound: make([]float64, 32)}),
		"the oracle has 32 elements of " + final: answers(final, contract.Bounded{Value: make([]float64, 32)}),
		"the oracle bounds no more than +Inf":    answers(trace.Loss, infinite),
	} {
		other := e
		other.Oracle = o
		if res := judge(other, nil); res.Verdict() != contract.Inconclusive || !strings.Contains(strings.Join(res.Doubts, "\n"), says) {
			t.Errorf("%s: %s, doubts %q, findings %+v", says, res.Verdict(), res.Doubts, res.Findings)
		}
	}
	for name, x := range map[string]edit{
		"an element of a gradient": {1, 0, trace.Grad, final, func(e *trace.Event) { e.Data = e.Data[1:] }},
		"the weights of a step":    {2, 1, trace.Weight, embed, func(e *trace.Event) { e.Data = nil }},
		"the moments before":       {2, -1, trace.MomentM, embed, func(e *trace.Event) { e.Data = nil }},
		"a loss":                   {2, 1, trace.Loss, "", func(e *trace.Event) { e.What = trace.LR }},
		"the steps taken":          {0, 0, trace.Counter, "", func(e *trace.Event) { e.What = trace.LR }},
	} {
		if res := judge(x.of(t, e), nil); res.Verdict() != contract.Inconclusive {
			t.Errorf("without %s: %s, saw %d of %d, findings %+v", name, res.Verdict(), res.Saw, res.Expected, res.Findings)
		}
	}
	cfg, err := spec.Of(e.Histories[contract.Test].Header.Spec)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Recording.Capture = false
	bare := contracttest.Edit(e, contract.Test, func(_ int, events []trace.Event) []trace.Event { return events })
	bare.Histories[contract.Test].Header.Spec = cfg.Recorded()
	if res := judge(bare, nil); res.Verdict() != contract.Inconclusive || !strings.Contains(strings.Join(res.Doubts, " "), "needs the elements") {
		t.Errorf("without elements: %s, doubts %q", res.Verdict(), res.Doubts)
	}
}
