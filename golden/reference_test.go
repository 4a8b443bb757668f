package golden_test

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/oracle"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/optim"
	"github.com/lockstep-ml/lockstep/golden"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/bound"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// references loads every reference, with the groups that its sizes allow.
func references(t *testing.T) []*golden.Reference {
	t.Helper()
	var out []*golden.Reference
	for _, name := range golden.References() {
		r, err := golden.LoadReference(name)
		if err != nil {
			t.Fatal(err)
		}
		if r.Model.KVHeads%2 == 0 {
			r.Model.Groups.Tensor = 2
		}
		if err := r.Model.Validate(); err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

// dense is the reference's model with its initial weights.
func dense(t *testing.T, be kernels.Backend, r *golden.Reference) *oracle.Dense {
	t.Helper()
	d, err := oracle.NewDense(be, r.Model, r.Steps[0].Seqs)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.SetWeights(r.Initial); err != nil {
		t.Fatal(err)
	}
	return d
}

func evaluate(t *testing.T, d *oracle.Dense, s golden.ReferenceStep) {
	t.Helper()
	b := model.Batch{Tokens: s.Tokens, Targets: s.Targets, Seqs: s.Seqs, InvN: 1 / float64(s.Valid)}
	if err := d.Evaluate(context.Background(), b); err != nil {
		t.Fatal(err)
	}
}

func wide(t *testing.T, be kernels.Backend, x kernels.Tensor) []float64 {
	t.Helper()
	out := make([]float64, x.Len())
	if err := be.ReadWide(out, x); err != nil {
		t.Fatal(err)
	}
	return out
}

// distance is the largest difference, in parts of the largest magnitude of want.
func distance(got, want []float64) float64 {
	diff, top := 0.0, 0.0
	for i, w := range want {
		diff, top = max(diff, math.Abs(got[i]-w)), max(top, math.Abs(w))
	}
	return diff / top
}

// agreement is how far float64 may be from PyTorch's float64, in parts of a
// tensor's largest magnitude: a few thousand roundings of 2^-53, amplified.
const agreement = 1e-10

// TestFloat64AgreesWithPyTorch: losses, gradients and weights after three steps
// of the float64 instance are those of an independent implementation.
func TestFloat64AgreesWithPyTorch(t *testing.T) {
	for _, r := range references(t) {
		be := ref.New[float64]()
		d := dense(t, be, r)
		s := newStepper(t, be, r, d)
		worst := map[string]float64{}
		check := func(what, name string, got, want []float64) {
			x := distance(got, want)
			worst[what] = max(worst[what], x)
			if !(x <= agreement) {
				t.Errorf("%s: %s of %s: off by %.2g of its largest magnitude", r.Model.Name, what, name, x)
			}
		}
		for i, st := range r.Steps {
			evaluate(t, d, st)
			check("loss", "the batch", wide(t, be, d.Loss()), []float64{st.Loss})
			if i == 0 {
				d.Params(func(p *model.Param) { check("gradient", p.Name, wide(t, be, d.Gradient(p)), r.Gradient[p.Name]) })
			}
			norm, lr := s.step(i)
			check("norm", "the gradient", []float64{norm, lr}, []float64{st.Norm, st.LR})
		}
		d.Params(func(p *model.Param) { check("weights", p.Name, wide(t, be, d.Weight(p)), r.Final[p.Name]) })
		t.Logf("%s: largest differences %v", r.Model.Name, worst)
	}
}

// stepper takes the optimizer's steps.
type stepper struct {
	t       *testing.T
	be      kernels.Backend
	r       *golden.Reference
	d       *oracle.Dense
	opt     optim.Optimizer
	moments map[string][]kernels.Tensor
}

func newStepper(t *testing.T, be kernels.Backend, r *golden.Reference, d *oracle.Dense) *stepper {
	t.Helper()
	opt, err := optim.New(r.Optimizer)
	if err != nil {
		t.Fatal(err)
	}
	s := &stepper{t, be, r, d, opt, map[string][]kernels.Tensor{}}
	d.Params(func(p *model.Param) {
		for range opt.Moments() {
			buf, err := be.Alloc(p.Len())
			if err != nil {
				t.Fatal(err)
			}
			s.moments[p.Name] = append(s.moments[p.Name], kernels.Flat(buf))
		}
	})
	return s
}

// step takes optimizer step n and gives the gradient's norm, in float64, and
// the learning rate.
func (s *stepper) step(n int) (norm, lr float64) {
	s.d.Params(func(p *model.Param) {
		for _, x := range wide(s.t, s.be, s.d.Gradient(p)) {
			norm += float64(x * x)
		}
	})
	norm = math.Sqrt(norm)
	at := optim.Step{T: n, LR: s.r.Optimizer.At(n), Coef: optim.ClipCoef(norm, s.r.Optimizer.Clip)}
	s.d.Params(func(p *model.Param) {
		s.opt.Update(s.be, s.d.Weight(p), s.d.Gradient(p), s.moments[p.Name], p.Decays, at)
	})
	return norm, at.LR
}

// TestFloat32LiesWithinBounds: every gradient element that float32 computes at
// step 0 lies within its running error bound of PyTorch's value, the bounds are
// tight enough to tell errors, and a planted error of any one parameter's gradient
// leaves them.
func TestFloat32LiesWithinBounds(t *testing.T) {
	for _, r := range references(t) {
		be := bound.New()
		d := dense(t, be, r)
		evaluate(t, d, r.Steps[0])
		loss, e := wide(t, be, d.Loss())[0], be.Bounds(d.Loss())[0]
		if diff := math.Abs(loss - r.Steps[0].Loss); !(diff <= e) {
			t.Errorf("%s: the loss is %v from PyTorch's, the bound is %v", r.Model.Name, diff, e)
		}
		var ratios []float64
		d.Params(func(p *model.Param) {
			g, e, want := wide(t, be, d.Gradient(p)), be.Bounds(d.Gradient(p)), r.Gradient[p.Name]
			outside := 0
			for i := range g {
				// PyTorch's own float64 rounding is far below any of the bounds.
				ratio := math.Abs(g[i]-want[i]) / e[i]
				if g[i] == want[i] {
					ratio = 0
				}
				ratios = append(ratios, ratio)
				if !(ratio <= 1) {
					t.Errorf("%s: %s[%d] is %v of its bound", r.Model.Name, p.Name, i, ratio)
				}
				if math.Abs(g[i]*(1+planted)-want[i]) > e[i] {
					outside++
				}
			}
			if outside == 0 {
				t.Errorf("%s: %s scaled by 1+%v stays within its bounds", r.Model.Name, p.Name, planted)
			}
		})
		slices.Sort(ratios)
		median := ratios[len(ratios)/2]
		t.Logf("%s: loss %.6f +- %.2g; observed/bound of %d gradient elements: median %.2g, largest %.2g",
			r.Model.Name, loss, e, len(ratios), median, ratios[len(ratios)-1])
		if median < 1e-4 {
			t.Errorf("%s: median observed/bound %.2g: the bounds say nothing", r.Model.Name, median)
		}
	}
}

// planted is an error of a gradient, in parts of it, that the bounds of every
// parameter resolve.
const planted = 0.02

// TestReferenceIsWhole: batches of a reference have unequal numbers of valid
// targets, one of them none, and clipping acts on some steps, not on all.
func TestReferenceIsWhole(t *testing.T) {
	for _, r := range references(t) {
		clipped := 0
		for i, st := range r.Steps {
			seen, total := map[int]bool{}, 0
			for s := range st.Seqs {
				n := 0
				for _, y := range st.Targets[s*r.Model.SeqLen : (s+1)*r.Model.SeqLen] {
					if y >= 0 {
						n++
					}
				}
				seen[n] = true
				total += n
			}
			if len(seen) < 4 || !seen[0] || total != st.Valid {
				t.Errorf("%s step %d: counts of valid targets %v, %d in all of %d", r.Model.Name, i, seen, total, st.Valid)
			}
			if st.Norm > r.Optimizer.Clip {
				clipped++
			}
		}
		if clipped == 0 || clipped == len(r.Steps) {
			t.Errorf("%s: %d of %d steps are clipped", r.Model.Name, clipped, len(r.Steps))
		}
	}
}

// TestParseReferenceRefuses: damaged files are refused, not half read.
func TestParseReferenceRefuses(t *testing.T) {
	const config = "config name=x vocab=2 hidden=1 layers=1 heads=1 kv_heads=1 head_dim=2 intermediate=1 seq_len=1 tied=true qkv_bias=false linear_bias=false norm_eps=1e-5 rope_theta=10\n"
	const step = "tokens 0 0 1\ntargets 0 0 1\nstep 0 valid=1 loss=1 norm=1 lr=1\n"
	for _, c := range []struct{ text, want string }{
		{"", "no step"},
		{config, "no step"},
		{config + step, "0 initial, 0 gradient and 0 final values"},
		{config + "tokens 0 0 1\n" + "step 0 valid=1 loss=1 norm=1 lr=1\n", "0 targets"},
		{config + "tokens 0 0 2\n", "line 2: tokens \"2\""},
		{config + "tokens 0 1 1\n", "out of order"},
		{config + "tokens 1 0 1\n", "line 2: step \"1\""},
		{config + "tokens 0 0\n", "want step, sequence and 1 numbers"},
		{"config name=x\n", "missing"},
		{config + "step 0 valid=1 valid=1\n", "given twice"},
		{config + "optimizer lr=oops\n", "lr=oops"},
		{"\t1\n", "outside a tensor"},
		{"initial w 1\n\t0x\n", "line 2"},
		{"initial w\n", "a name and a shape"},
		{"garbage\n", "unknown record"},
		{"step\n", "want its number"},
	} {
		_, err := golden.ParseReference(strings.NewReader(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v, want one with %q", c.text, err, c.want)
		}
	}
	if _, err := golden.LoadReference("no such"); err == nil || !strings.Contains(err.Error(), "untied") {
		t.Errorf("unknown reference: %v", err)
	}
}
