package independent_test

import (
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/independent"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/internal/race"
)

// sensitive is a run whose fields all differ from their defaults.
func sensitive(t *testing.T) *recording {
	return record(t, preset(t, "odd", func(c *spec.Config) {
		c.Model.LinearBias, c.Model.Tied, c.Model.NormEps, c.Model.RopeTheta = true, false, 1e-4, 500
		c.Steps = 3
	}))
}

// outside counts the tensors that lie outside their bounds.
func outside(t *testing.T, r *recording, m *independent.Model, b independent.Batch, step int) (names []string) {
	t.Helper()
	pins := r.pins(t, step, everything)
	got := evaluate(t, m, b, pins)
	all := append(got.Judged, got.Loss.Judge("loss", []float32{float32(r.scalar(t, step, trace.Loss))}))
	for name, g := range r.captured(t, step, trace.Grad) {
		all = append(all, got.Gradients[name].Judge(name, g))
	}
	for _, j := range all {
		if j.Outside() {
			names = append(names, j.Name)
		}
	}
	slices.Sort(names)
	return names
}

// A constant that is off, a weight, a token, a target or a count shows, and at
// which tensor: a run that computed with the one given here would be told from
// one that computed with the other.
func TestWrongModelsShow(t *testing.T) {
	r := sensitive(t)
	w, batch := r.captured(t, -1, trace.Weight), r.batch(t, 0)
	s := shape(r.cfg.Model)
	cases := []struct {
		name   string
		change func(s *independent.Shape, w map[string][]float32, b *independent.Batch)
		at     string // a tensor that is outside; "" is none
	}{
		{"nothing", func(*independent.Shape, map[string][]float32, *independent.Batch) {}, ""},
		{"eps", func(s *independent.Shape, _ map[string][]float32, _ *independent.Batch) { s.NormEps *= 1.02 }, "block.0/n1"},
		{"theta", func(s *independent.Shape, _ map[string][]float32, _ *independent.Batch) { s.RopeTheta *= 1.001 }, "block.2/attention"},
		{"a head weight", func(_ *independent.Shape, w map[string][]float32, _ *independent.Batch) {
			w["lm_head.weight"][40] *= 1.01
		}, "final/logits"},
		{"a gate weight", func(_ *independent.Shape, w map[string][]float32, _ *independent.Batch) {
			w["model.layers.1.mlp.gate_proj.weight"][40] *= 1.01
		}, "block.1/gate"},
		{"a query's bias", func(_ *independent.Shape, w map[string][]float32, _ *independent.Batch) {
			w["model.layers.3.self_attn.q_proj.bias"][3] *= 1.01
		}, "block.3/q"},
		{"an output's bias", func(_ *independent.Shape, w map[string][]float32, _ *independent.Batch) {
			w["model.layers.0.mlp.down_proj.bias"][3] *= 1.01
		}, "block.1/x"},
		{"a token", func(_ *independent.Shape, _ map[string][]float32, b *independent.Batch) { b.Tokens[100] ^= 1 }, "block.0/x"},
		{"a target", func(_ *independent.Shape, _ map[string][]float32, b *independent.Batch) { b.Targets[100] ^= 1 }, "final/dlogits"},
		{"an ignored target", func(_ *independent.Shape, _ map[string][]float32, b *independent.Batch) {
			b.Targets[slices.IndexFunc(b.Targets, func(y int32) bool { return y >= 0 })] = -1
		}, "final/dlogits"},
	}
	for _, c := range race.Some(4, cases) {
		s, w, b := s, clone(w), batch
		b.Tokens, b.Targets = slices.Clone(b.Tokens), slices.Clone(b.Targets)
		c.change(&s, w, &b)
		m := newModel(t, s, w)
		m.Workers, m.Groups = r.cfg.Plan.Workers(r.cfg.Model), r.cfg.Model.Groups.Tensor
		got := outside(t, r, m, b, 0)
		if c.at == "" && len(got) > 0 || c.at != "" && !slices.Contains(got, c.at) {
			t.Errorf("%s: outside are %v, want %q", c.name, got, c.at)
		}
	}
}

func clone(w map[string][]float32) map[string][]float32 {
	out := maps.Clone(w)
	for name, x := range out {
		out[name] = slices.Clone(x)
	}
	return out
}

// A gradient that is off by a thousandth anywhere in a tensor's larger half is
// outside.
func TestWrongGradientsShow(t *testing.T) {
	r := sensitive(t)
	m := newModel(t, shape(r.cfg.Model), r.captured(t, -1, trace.Weight))
	m.Workers, m.Groups = r.cfg.Plan.Workers(r.cfg.Model), r.cfg.Model.Groups.Tensor
	got := evaluate(t, m, r.batch(t, 0), r.pins(t, 0, everything))
	for name, g := range r.captured(t, 0, trace.Grad) {
		want := got.Gradients[name]
		top := 0.0
		for _, x := range want.Value {
			top = math.Max(top, math.Abs(x))
		}
		for i := range g {
			if math.Abs(want.Value[i]) < top/2 {
				continue
			}
			one := independent.Bounded{Value: want.Value[i : i+1], Bound: want.Bound[i : i+1]}
			if _, ratio := one.Worst([]float32{g[i] * 1.001}); ratio <= 1 {
				t.Errorf("%s[%d]: one part in a thousand more lies %v of the bound out", name, i, ratio)
			}
		}
	}
}

// Every field of the optimizer shows in an update, or in the rate, the norm or the
// coefficient.
func TestWrongOptimizersShow(t *testing.T) {
	for _, name := range []string{"adamw", "sgd"} {
		r := record(t, preset(t, "odd", func(c *spec.Config) {
			c.Steps = 7
			c.Optimizer.Name, c.Optimizer.Decay, c.Optimizer.Beta1, c.Optimizer.Beta2, c.Optimizer.Eps = name, 0.2, 0.85, 0.97, 1e-6
			c.Optimizer.MinLR, c.Optimizer.Momentum = 1e-4, 0.8
		}))
		for _, c := range []struct {
			field  string
			change func(o *independent.Optimizer, taken *int)
			only   string // the optimizer that has the field; "" is both
		}{
			{"lr", func(o *independent.Optimizer, _ *int) { o.LR *= 1.001 }, ""},
			{"warmup", func(o *independent.Optimizer, _ *int) { o.Warmup++ }, ""},
			{"horizon", func(o *independent.Optimizer, _ *int) { o.Horizon++ }, ""},
			{"min_lr", func(o *independent.Optimizer, _ *int) { o.MinLR = 0 }, ""},
			{"clip", func(o *independent.Optimizer, _ *int) { o.Clip *= 1.0001 }, ""},
			{"decay", func(o *independent.Optimizer, _ *int) { o.Decay *= 1.01 }, ""},
			{"taken", func(_ *independent.Optimizer, taken *int) { *taken++ }, ""},
			{"beta1", func(o *independent.Optimizer, _ *int) { o.Beta1 += 1e-4 }, "adamw"},
			{"beta2", func(o *independent.Optimizer, _ *int) { o.Beta2 += 1e-4 }, "adamw"},
			{"eps", func(o *independent.Optimizer, _ *int) { o.Eps *= 1.1 }, "adamw"},
			{"momentum", func(o *independent.Optimizer, _ *int) { o.Momentum += 1e-4 }, "sgd"},
			{"nothing", func(*independent.Optimizer, *int) {}, "nothing"},
		} {
			if c.only != "" && c.only != name && c.only != "nothing" {
				continue
			}
			got := wrongUpdates(t, r, c.change)
			if (got > 0) == (c.only == "nothing") {
				t.Errorf("%s with another %s: %d tensors are outside", name, c.field, got)
			}
		}
	}
}

// wrongUpdates counts the tensors outside the bounds of updates with another
// optimizer, over all steps; the rates are applied, not compared.
func wrongUpdates(t *testing.T, r *recording, change func(o *independent.Optimizer, taken *int)) (n int) {
	t.Helper()
	s := shape(r.cfg.Model)
	for step := range r.cfg.Steps {
		o, taken := optimizer(r.cfg.Optimizer), step
		change(&o, &taken)
		grads := r.captured(t, step, trace.Grad)
		coef := o.Coefficient(independent.Norm(grads))
		kinds := append([]string{trace.Weight}, o.Moments()...)
		before, after := map[string]map[string][]float32{}, map[string]map[string][]float32{}
		for _, kind := range kinds {
			before[kind], after[kind] = r.captured(t, step-1, kind), r.captured(t, step, kind)
		}
		for _, p := range s.Params()[:6] {
			var moments [][]float32
			for _, kind := range kinds[1:] {
				moments = append(moments, before[kind][p.Name])
			}
			w, m, err := o.Update(p, before[trace.Weight][p.Name], grads[p.Name], moments, taken, o.Rate(taken), coef)
			if err != nil {
				t.Fatal(err)
			}
			for i, x := range append([]independent.Bounded{w}, m...) {
				if _, ratio := x.Worst(after[kinds[i]][p.Name]); ratio > 1 {
					n++
				}
			}
		}
	}
	return n
}
