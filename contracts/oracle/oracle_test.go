package oracle_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/oracle"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

func text(string) (data.Text, error) { return data.Default(), nil }

// config is a fixture with a plan, recorded with its elements.
func config(t *testing.T, name, p string, change func(*spec.Config)) spec.Config {
	t.Helper()
	c, err := spec.Preset(name)
	if err != nil {
		t.Fatal(err)
	}
	if c.Plan, err = plan.Parse(p); err != nil {
		t.Fatal(err)
	}
	c.Steps, c.Model.Layers = 2, 1
	c.Recording = spec.Recording{Digests: true, Capture: true}
	if change != nil {
		change(&c)
	}
	return c
}

func record(t *testing.T, c spec.Config) *trace.History {
	t.Helper()
	be := ref.New[float32]()
	out, err := launch.Local(context.Background(), c, data.Default(), launch.Parts{Backend: func(int) (kernels.Backend, error) { return be, nil }})
	if err != nil {
		t.Fatal(err)
	}
	return out.History
}

// captured collects what rank 0 recorded of one kind after a step.
func captured(t *testing.T, h *trace.History, step int, what string) map[string][]float32 {
	t.Helper()
	out := map[string][]float32{}
	for e := range h.All {
		if e.Kind == trace.KindDigest && e.Rank == 0 && e.Step == step && e.What == what {
			out[e.Tensor] = append(out[e.Tensor], e.Data...)
		}
	}
	if len(out) == 0 {
		t.Fatalf("no elements of %s at step %d", what, step)
	}
	return out
}

func lossOf(t *testing.T, h *trace.History, step int) float64 {
	t.Helper()
	for e := range h.All {
		if e.Kind == trace.KindScalar && e.Step == step && e.What == trace.Loss && e.Once {
			return float64(e.Value)
		}
	}
	t.Fatalf("no loss of step %d", step)
	return 0
}

// TestGradientBoundsPlans: at the recorded weights of every step, gradients and
// losses of plans that do not promise bits lie within the bounds; the bounds are
// so tight that one part in a thousand of any parameter's gradient leaves them.
func TestGradientBoundsPlans(t *testing.T) {
	for _, c := range []struct{ config, plan string }{
		{"nano", "dp=3"}, {"odd", "dp=5"}, {"odd", "dp=4,comm=ring"},
	} {
		t.Run(c.config+" "+c.plan, func(t *testing.T) {
			cfg := config(t, c.config, c.plan, nil)
			h, o := record(t, cfg), oracle.NewOracle(text)
			var ratios []float64
			for step := range cfg.Steps {
				want, err := o.Gradient(specOf(t, h), step, captured(t, h, step-1, trace.Weight))
				if err != nil {
					t.Fatal(err)
				}
				got := captured(t, h, step, trace.Grad)
				if len(want) != len(got)+1 {
					t.Fatalf("step %d: %d answers for %d parameters and the loss", step, len(want), len(got))
				}
				for name, g := range got {
					ratios = append(ratios, within(t, fmt.Sprintf("step %d %s", step, name), g, want[name])...)
				}
				within(t, "loss", []float32{float32(lossOf(t, h, step))}, want[trace.Loss])
			}
			slices.Sort(ratios)
			median := ratios[len(ratios)/2]
			t.Logf("observed/bound of %d elements: median %.2g, largest %.2g", len(ratios), median, ratios[len(ratios)-1])
			if median < 1e-4 {
				t.Errorf("median observed/bound %.2g: the bounds say nothing", median)
			}
		})
	}
}

// within gives observed/bound per element and fails where it exceeds 1 or where
// a planted error does not.
func within(t *testing.T, name string, got []float32, want contract.Bounded) []float64 {
	t.Helper()
	var ratios []float64
	planted := false
	for i, x := range got {
		d := math.Abs(float64(x) - want.Value[i])
		if d > want.Bound[i] || math.IsNaN(d) {
			t.Fatalf("%s[%d]: %v is %v from %v, the bound is %v", name, i, x, d, want.Value[i], want.Bound[i])
		}
		planted = planted || math.Abs(float64(x)*(1+1e-3)-want.Value[i]) > want.Bound[i]
		if want.Bound[i] > 0 {
			ratios = append(ratios, d/want.Bound[i])
		}
	}
	if !planted {
		t.Errorf("%s: one part in a thousand more stays within the bounds", name)
	}
	return ratios
}

// TestUpdateIsTheTrainers: given the recorded state and gradient, Update gives
// the recorded next state bit for bit and leaves its arguments alone.
func TestUpdateIsTheTrainers(t *testing.T) {
	for _, optimizer := range []string{"adamw", "sgd"} {
		cfg := config(t, "odd", "dp=3", func(c *spec.Config) { c.Optimizer.Name, c.Optimizer.Decay = optimizer, 0.1 })
		h, o := record(t, cfg), oracle.NewOracle(text)
		kinds := []string{trace.Weight, trace.MomentM, trace.MomentV}
		if optimizer == "sgd" {
			kinds = []string{trace.Weight, trace.Momentum}
		}
		state := func(step int) contract.State {
			s := contract.State{}
			for _, what := range kinds {
				s[what] = captured(t, h, step, what)
			}
			return s
		}
		for step := range cfg.Steps {
			before := state(step - 1)
			after, err := o.Update(specOf(t, h), step, before, captured(t, h, step, trace.Grad))
			if err != nil {
				t.Fatal(err)
			}
			same(t, optimizer+" after", after, state(step))
			same(t, optimizer+" before", before, state(step-1))
			wrong, err := o.Update(specOf(t, h), step+1, before, captured(t, h, step, trace.Grad))
			if err != nil {
				t.Fatal(err)
			}
			if differ(wrong, after) == "" {
				t.Errorf("%s step %d: one step more gives the same state", optimizer, step)
			}
		}
	}
}

func same(t *testing.T, name string, a, b contract.State) {
	t.Helper()
	if d := differ(a, b); d != "" {
		t.Fatalf("%s: %s", name, d)
	}
}

// differ names the first difference of two states.
func differ(a, b contract.State) string {
	if len(a) != len(b) {
		return fmt.Sprintf("%d and %d kinds", len(a), len(b))
	}
	for what, tensors := range a {
		for name, x := range tensors {
			y := b[what][name]
			if len(x) != len(y) {
				return fmt.Sprintf("%s of %s has %d and %d elements", what, name, len(x), len(y))
			}
			for i := range x {
				if math.Float32bits(x[i]) != math.Float32bits(y[i]) {
					return fmt.Sprintf("%s of %s[%d]: %v and %v", what, name, i, x[i], y[i])
				}
			}
		}
	}
	return ""
}

// TestNonFiniteGradientChangesNothing: where the norm is not finite no rank
// steps.
func TestNonFiniteGradientChangesNothing(t *testing.T) {
	cfg := config(t, "nano", "dp=1", func(c *spec.Config) { c.Steps = 1 })
	h := record(t, cfg)
	before := contract.State{trace.Weight: captured(t, h, -1, trace.Weight), trace.MomentM: captured(t, h, -1, trace.MomentM), trace.MomentV: captured(t, h, -1, trace.MomentV)}
	grad := captured(t, h, 0, trace.Grad)
	for _, x := range []float64{math.NaN(), math.Inf(-1)} {
		grad["model.norm.weight"][3] = float32(x)
		after, err := oracle.NewOracle(text).Update(specOf(t, h), 0, before, grad)
		if err != nil {
			t.Fatal(err)
		}
		same(t, "after", after, before)
	}
}

// specOf is the configuration of a recorded run.
func specOf(t *testing.T, h *trace.History) spec.Config {
	t.Helper()
	c, err := spec.Of(h.Header.Spec)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestRefusals: what does not fit the spec is an error that names it, and so is
// an answer whose bounds say nothing.
func TestRefusals(t *testing.T) {
	cfg := config(t, "nano", "dp=3", func(c *spec.Config) { c.Steps = 1 })
	h := record(t, cfg)
	weights := captured(t, h, -1, trace.Weight)
	respec := func(change func(c *spec.Config)) spec.Config {
		c := specOf(t, h)
		change(&c)
		return c
	}
	other := func(string) (data.Text, error) {
		return data.Text{Name: "default", Bytes: []byte("another text")}, nil
	}
	short := map[string][]float32{}
	for n, w := range weights {
		short[n] = w
	}
	short["model.norm.weight"] = short["model.norm.weight"][1:]
	for _, c := range []struct {
		name    string
		spec    spec.Config
		weights map[string][]float32
		text    func(string) (data.Text, error)
		want    string
	}{
		{"no configuration", spec.Config{}, weights, text, "vocab"},
		{"another text", specOf(t, h), weights, other, "hash"},
		{"no text", specOf(t, h), weights, func(string) (data.Text, error) { return data.Text{}, fmt.Errorf("gone") }, "gone"},
		{"no weights", specOf(t, h), nil, text, "model.embed_tokens.weight"},
		{"short weights", specOf(t, h), short, text, "model.norm.weight"},
		{"tensor-parallel ring", respec(func(c *spec.Config) { c.Plan.DP, c.Plan.TP, c.Plan.MicroBatches, c.Plan.Comm = 1, 4, 0, "ring" }), weights, text, "says nothing"},
	} {
		_, err := oracle.NewOracle(c.text).Gradient(c.spec, 0, c.weights)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.name, err, c.want)
		}
	}
	if _, err := oracle.NewOracle(text).Update(specOf(t, h), 0, contract.State{}, weights); err == nil || !strings.Contains(err.Error(), "weight of model.embed_tokens.weight") {
		t.Errorf("update of no state: %v", err)
	}
}

// TestAnswersFollowTheQuestion: the kept answer is not given to another question.
func TestAnswersFollowTheQuestion(t *testing.T) {
	cfg := config(t, "nano", "dp=1", func(c *spec.Config) { c.Sequences = 4 })
	h, o := record(t, cfg), oracle.NewOracle(text)
	ask := func(step, weights int) float64 {
		t.Helper()
		g, err := o.Gradient(specOf(t, h), step, captured(t, h, weights, trace.Weight))
		if err != nil {
			t.Fatal(err)
		}
		return g[trace.Loss].Value[0]
	}
	a, b, c, again := ask(0, -1), ask(1, -1), ask(0, 0), ask(0, -1)
	if a == b || a == c || b == c || a != again {
		t.Errorf("losses %v, %v, %v of three questions, %v of the first asked again", a, b, c, again)
	}
}
