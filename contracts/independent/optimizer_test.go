package independent_test

import (
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/independent"
	"github.com/lockstep-ml/lockstep/core/optim"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/golden"
	"github.com/lockstep-ml/lockstep/internal/race"
	"github.com/lockstep-ml/lockstep/kernels"
)

// optimizer is that of a core configuration, field by field.
func optimizer(c optim.Config) independent.Optimizer {
	return independent.Optimizer{Name: c.Name, LR: c.LR, Beta1: c.Beta1, Beta2: c.Beta2, Eps: c.Eps, Momentum: c.Momentum, Decay: c.Decay,
		Clip: c.Clip, Warmup: c.Warmup, Horizon: c.Horizon, MinLR: c.MinLR, Arithmetic: kernels.Arithmetic}
}

// The recorded schedules are the formula's.
func TestRatesAreGolden(t *testing.T) {
	for _, v := range golden.ScheduleVariants() {
		s, err := golden.LoadSchedule(v.Name)
		if err != nil {
			t.Fatal(err)
		}
		o := optimizer(v.Config)
		for i, x := range s.Rates {
			if !o.RateIs(i, x) {
				t.Errorf("%s step %d: recorded is %v, the formula gives %v", v.Name, i, x, o.Rate(i))
			}
			if i > 0 && o.RateIs(i-1, x) && math.Abs(o.Rate(i)-o.Rate(i-1)) > 1e-12 {
				t.Errorf("%s step %d: %v passes for the step before", v.Name, i, x)
			}
		}
	}
}

// Three steps of AdamW end at PyTorch's weights, with its norms and rates.
func TestUpdatesArePyTorchs(t *testing.T) {
	for _, name := range golden.References() {
		r, err := golden.LoadReference(name)
		if err != nil {
			t.Fatal(err)
		}
		s, o := shape(r.Model), optimizer(r.Optimizer)
		worst := 0.0
		for i, st := range r.Steps {
			if math.Abs(o.Rate(i)-st.LR) > 1e-15 {
				t.Errorf("%s step %d: rate %v, want %v", name, i, o.Rate(i), st.LR)
			}
		}
		// One float32 step from the initial weights, moments 0, to compare with the
		// formula in plain float64, evaluated here from PyTorch's gradient.
		norm := r.Steps[0].Norm
		if n := normOf(r.Gradient); math.Abs(n-norm) > 1e-12*norm {
			t.Errorf("%s: norm %v, want %v", name, n, norm)
		}
		coef := math.Min(1, r.Optimizer.Clip/(norm+1e-6))
		if got := o.Coefficient(norm); got != coef {
			t.Errorf("%s: coefficient %v, want %v", name, got, coef)
		}
		for _, p := range s.Params() {
			g := make([]float32, p.Len())
			for i, x := range r.Gradient[p.Name] {
				g[i] = float32(x)
			}
			w, _, err := o.Update(p, r.Initial[p.Name], g, [][]float32{make([]float32, p.Len()), make([]float32, p.Len())}, 0, o.Rate(0), coef)
			if err != nil {
				t.Fatal(err)
			}
			for i, x := range r.Initial[p.Name] {
				// At the first step m/c1 is g and v/c2 is g^2.
				g, decay := float64(g[i])*coef, 0.0
				if p.Decays {
					decay = r.Optimizer.Decay
				}
				want := float64(x) - o.Rate(0)*(g/(math.Abs(g)+r.Optimizer.Eps)+decay*float64(x))
				worst = max(worst, math.Abs(w.Value[i]-want))
			}
		}
		if worst > 1e-15 {
			t.Errorf("%s: a weight is %.2g from the formula", name, worst)
		}
	}
}

// updates are runs of several steps, past the warm-up, clipped and not.
func updates() map[string]func(c *spec.Config) {
	return map[string]func(c *spec.Config){
		"nano": nil, "odd": nil,
		"nano sgd": func(c *spec.Config) { c.Optimizer.Name, c.Optimizer.Decay, c.Optimizer.LR = "sgd", 0.05, 0.1 },
		"odd sgd":  func(c *spec.Config) { c.Optimizer.Name, c.Optimizer.Decay, c.Optimizer.Momentum = "sgd", -1, 0.5 },
		"odd betas": func(c *spec.Config) {
			c.Optimizer.Beta1, c.Optimizer.Beta2, c.Optimizer.Eps, c.Optimizer.Decay = 0.8, 0.99, 1e-6, 0.3
			c.Optimizer.Warmup, c.Optimizer.Horizon, c.Optimizer.MinLR = 2, 9, 1e-4
		},
	}
}

// Norm, coefficient, rate and update of every step are those of the formulas.
func TestUpdatesHold(t *testing.T) {
	for _, name := range race.Some(3, slices.Sorted(maps.Keys(updates()))) {
		t.Run(name, func(t *testing.T) {
			c := preset(t, firstWord(name), func(c *spec.Config) {
				c.Steps = 8
				if change := updates()[name]; change != nil {
					change(c)
				}
			})
			r := record(t, c)
			worst, clipped := &tally{}, 0
			for step := range r.cfg.Steps {
				clipped += judgeUpdate(t, r, step, worst)
			}
			t.Logf("%d of %d steps clipped; %v", clipped, r.cfg.Steps, worst)
			if clipped == 0 || clipped == r.cfg.Steps {
				t.Errorf("%d of %d steps clipped", clipped, r.cfg.Steps)
			}
		})
	}
}

func firstWord(s string) string {
	if i := slices.Index([]byte(s), ' '); i >= 0 {
		return s[:i]
	}
	return s
}

// judgeUpdate gives 1 where the step was clipped.
func judgeUpdate(t testing.TB, r *recording, step int, worst *tally) (clipped int) {
	t.Helper()
	s, o := shape(r.cfg.Model), optimizer(r.cfg.Optimizer)
	grads := r.captured(t, step, trace.Grad)
	norm := r.scalar(t, step, trace.Norm)
	if !independent.NormIs(grads, norm) || independent.NormIs(grads, norm*(1+1e-13)) {
		t.Errorf("step %d: norm %v, want %v", step, norm, independent.Norm(grads))
	}
	coef := o.Coefficient(independent.Norm(grads))
	if got := r.scalar(t, step, trace.Coef); math.Abs(got-coef) > 1e-14 {
		t.Errorf("step %d: coefficient %v, want %v", step, got, coef)
	}
	if got := r.scalar(t, step, trace.LR); !o.RateIs(step, got) {
		t.Errorf("step %d: learning rate %v, want %v", step, got, o.Rate(step))
	}
	kinds := append([]string{trace.Weight}, o.Moments()...)
	before, after := map[string]map[string][]float32{}, map[string]map[string][]float32{}
	for _, kind := range kinds {
		before[kind], after[kind] = r.captured(t, step-1, kind), r.captured(t, step, kind)
	}
	for _, p := range s.Params() {
		var moments [][]float32
		for _, kind := range kinds[1:] {
			moments = append(moments, before[kind][p.Name])
		}
		w, m, err := o.Update(p, before[trace.Weight][p.Name], grads[p.Name], moments, step, o.Rate(step), coef)
		if err != nil {
			t.Fatal(err)
		}
		for i, x := range append([]independent.Bounded{w}, m...) {
			worst.add(t, kinds[i]+" of "+p.Name, x, after[kinds[i]][p.Name])
		}
	}
	if coef < 1 {
		return 1
	}
	return 0
}

// The evaluated gradient's norm and the recorded one are within the bound.
func TestNormsHold(t *testing.T) {
	r := record(t, preset(t, "odd", nil))
	m := newModel(t, shape(r.cfg.Model), r.captured(t, -1, trace.Weight))
	m.Workers, m.Groups = r.cfg.Plan.Workers(r.cfg.Model), r.cfg.Model.Groups.Tensor
	value, bound := map[string][]float64{}, map[string][]float64{}
	for name, g := range evaluate(t, m, r.batch(t, 0), r.pins(t, 0, everything)).Gradients {
		value[name], bound[name] = g.Value, g.Bound
	}
	// Norms differ by at most the norm of the difference.
	n, off, norm := normOf(value), normOf(bound), r.scalar(t, 0, trace.Norm)
	t.Logf("norm %v, evaluated %v +- %v", norm, n, off)
	if math.Abs(norm-n) > off*(1+0x1p-20)+n*0x1p-40 || off > 1e-3*norm {
		t.Errorf("norm %v, evaluated %v +- %v", norm, n, off)
	}
}

// normOf is the norm of all elements together.
func normOf(grads map[string][]float64) float64 {
	sum := 0.0
	for _, g := range grads {
		for _, x := range g {
			sum += x * x
		}
	}
	return math.Sqrt(sum)
}

// A norm that is not finite is known as such.
func TestNormsThatAreNotFinite(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, c := range []struct {
		x    []float32
		norm float64
		is   bool
	}{
		{[]float32{1, nan}, math.NaN(), true}, {[]float32{1, nan}, 1, false}, {[]float32{1, inf}, math.Inf(1), true}, {[]float32{1, -inf}, 1, false},
		{[]float32{3, 4}, 5, true}, {[]float32{3, 4}, math.NaN(), false}, {[]float32{3, 4}, math.Inf(1), false}, {[]float32{inf, nan}, math.NaN(), true},
		{nil, 0, true}, {[]float32{math.MaxFloat32}, math.MaxFloat32, true},
	} {
		if got := independent.NormIs(map[string][]float32{"x": c.x}, c.norm); got != c.is {
			t.Errorf("norm %v of %v: %v, want %v", c.norm, c.x, got, c.is)
		}
	}
}
