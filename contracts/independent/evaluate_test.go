package independent_test

import (
	"context"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/independent"
	"github.com/lockstep-ml/lockstep/contracts/oracle"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// small is a shape with everything a shape may have: biases, groups of query
// heads, a head dimension that does not make the hidden size.
func small(tied bool) independent.Shape {
	return independent.Shape{Vocab: 11, Hidden: 10, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 4, Intermediate: 9, SeqLen: 5, Tied: tied,
		QKVBias: true, LinearBias: true, NormEps: 1e-3, RopeTheta: 50, InitStd: 0.4, InitBias: 0.3}
}

// weights are the initial ones, the norms' moved off 1.
func weights(s independent.Shape) map[string][]float32 {
	out := map[string][]float32{}
	for _, p := range s.Params() {
		x := s.Initial(p, 7)
		if strings.HasSuffix(p.Name, "norm.weight") {
			for i := range x {
				x[i] += float32(i%5)/8 - 0.25
			}
		}
		out[p.Name] = x
	}
	return out
}

// batchOf is n random sequences with ignored targets, the last all ignored where
// there are several.
func batchOf(s independent.Shape, n int) independent.Batch {
	r := rand.New(rand.NewPCG(3, 4))
	b := independent.Batch{Seqs: n}
	for i := range n * s.SeqLen {
		b.Tokens, b.Targets = append(b.Tokens, int32(r.IntN(s.Vocab))), append(b.Targets, int32(r.IntN(s.Vocab)))
		if i%4 == 3 || n > 1 && i >= (n-1)*s.SeqLen {
			b.Targets[i] = -1 - int32(i%2)
		}
	}
	return b
}

// Gradients are the loss's central differences: moving a weight by h either way
// changes the loss by 2hg + O(h^3).
func TestGradientsAreDifferences(t *testing.T) {
	for _, tied := range []bool{false, true} {
		s := small(tied)
		w, b := weights(s), batchOf(s, 3)
		grads := evaluate(t, newModel(t, s, w), b, nil).Gradients
		loss := func() float64 { return evaluate(t, newModel(t, s, w), b, nil).Loss.Value[0] }
		for _, p := range s.Params() {
			for _, i := range []int{0, p.Len() / 2, p.Len() - 1} {
				old := w[p.Name][i]
				up, down := old+0x1p-13, old-0x1p-13
				w[p.Name][i] = up
				high := loss()
				w[p.Name][i] = down
				low := loss()
				w[p.Name][i] = old
				got, want := (high-low)/(float64(up)-float64(down)), grads[p.Name].Value[i]
				if math.Abs(got-want) > 1e-7 {
					t.Errorf("tied=%v %s[%d]: difference %v, gradient %v", tied, p.Name, i, got, want)
				}
			}
		}
	}
}

// Values are those of core's own float64 instance, and both bound analyses
// contain core's float32 instance.
func TestValuesAreTheOracles(t *testing.T) {
	for _, tied := range []bool{false, true} {
		s := small(tied)
		s.InitStd, s.InitBias = 0.05, 0.1 // bounds of a whole program grow with its weights
		c := model.Config{Name: "small", Vocab: s.Vocab, Hidden: s.Hidden, Layers: s.Layers, Heads: s.Heads, KVHeads: s.KVHeads, HeadDim: s.HeadDim,
			Intermediate: s.Intermediate, SeqLen: s.SeqLen, Tied: tied, QKVBias: true, LinearBias: true, NormEps: s.NormEps, RopeTheta: s.RopeTheta}
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		w, b := weights(s), batchOf(s, 4)
		got := evaluate(t, newModel(t, s, w), b, nil)
		wide, narrow := dense(t, ref.New[float64](), c, w, b), dense(t, ref.New[float32](), c, w, b)
		y := &tally{}
		for name, g := range got.Gradients {
			if d := distance(g.Value, wide[name]); !(d < 1e-12) {
				t.Errorf("tied=%v: %s is %.2g off", tied, name, d)
			}
			x := make([]float32, len(g.Value))
			for i := range x {
				x[i] = float32(narrow[name][i])
			}
			y.add(t, name, g, x)
		}
		if len(got.Gradients) != len(wide)-1 || math.Abs(got.Loss.Value[0]-wide["loss"][0]) > 1e-13 {
			t.Errorf("tied=%v: %d gradients, loss %v; want %d, %v", tied, len(got.Gradients), got.Loss.Value, len(wide)-1, wide["loss"])
		}
		y.add(t, "loss", got.Loss, []float32{float32(narrow["loss"][0])})
		t.Logf("tied=%v: %v", tied, y)
		if !(y.width < 0.2) {
			t.Errorf("tied=%v: bounds of a small program say nothing", tied)
		}
	}
}

// evaluated is core's model on a backend, after loss and gradients of a batch.
func evaluated(t *testing.T, be kernels.Backend, c model.Config, w map[string][]float32, b independent.Batch) *oracle.Dense {
	t.Helper()
	d, err := oracle.NewDense(be, c, b.Seqs)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.SetWeights(w); err != nil {
		t.Fatal(err)
	}
	if err := d.Evaluate(context.Background(), model.Batch{Tokens: b.Tokens, Targets: b.Targets, Seqs: b.Seqs, InvN: 1 / float64(b.Valid())}); err != nil {
		t.Fatal(err)
	}
	return d
}

// dense is loss and gradients by core's model on a backend.
func dense(t *testing.T, be kernels.Backend, c model.Config, w map[string][]float32, b independent.Batch) map[string][]float64 {
	t.Helper()
	d := evaluated(t, be, c, w, b)
	read := func(x kernels.Tensor) []float64 {
		out := make([]float64, x.Len())
		if err := be.ReadWide(out, x); err != nil {
			t.Fatal(err)
		}
		return out
	}
	out := map[string][]float64{"loss": read(d.Loss())}
	d.Params(func(p *model.Param) { out[p.Name] = read(d.Gradient(p)) })
	return out
}

func TestModelRefuses(t *testing.T) {
	s := small(false)
	w := weights(s)
	m, b := newModel(t, s, w), batchOf(s, 2)
	refused := func(err error, says string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want an error with %q", err, says)
		}
	}
	eval := func(b independent.Batch, p independent.Pins) error { _, err := m.Evaluate(b, p); return err }
	refused(eval(independent.Batch{}, nil), "at least one sequence")
	refused(eval(independent.Batch{Tokens: b.Tokens, Targets: b.Targets[1:], Seqs: 2}, nil), "targets")
	wrong := independent.Batch{Tokens: slices.Clone(b.Tokens), Targets: b.Targets, Seqs: 2}
	wrong.Tokens[3] = int32(s.Vocab)
	refused(eval(wrong, nil), "vocabulary")
	none := independent.Batch{Tokens: b.Tokens, Targets: slices.Repeat([]int32{-1}, len(b.Targets)), Seqs: 2}
	refused(eval(none, nil), "no target is valid")
	refused(eval(b, independent.Pins{"block.2/x": nil}), "0 of 1 pins")
	refused(eval(b, independent.Pins{"block.1/q": make([]float32, 3)}), "block.1/q: 3 elements, want 160")
	refused(eval(b, independent.Pins{"final/logits": make([]float32, 3)}), "final/logits")
	short := maps.Clone(w)
	delete(short, "model.norm.weight")
	_, err := independent.New(s, short)
	refused(err, "model.norm.weight: 0 elements, want 10")
	for says, change := range map[string]func(*independent.Shape){
		"head_dim=3": func(s *independent.Shape) { s.HeadDim = 3 }, "heads=5": func(s *independent.Shape) { s.Heads = 5 },
		"vocab=0": func(s *independent.Shape) { s.Vocab = 0 }, "norm_eps=-1": func(s *independent.Shape) { s.NormEps = -1 },
		"rope_theta=0": func(s *independent.Shape) { s.RopeTheta = 0 },
	} {
		x := s
		change(&x)
		_, err := independent.New(x, w)
		refused(err, says)
	}
}

// What is not a number, or is infinite, or of another length, is outside.
func TestWorst(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct {
		value, bound float64
		got          float32
		outside      bool
	}{
		{1, 0, 1, false}, {1, 0, 1.5, true}, {1, 0.5, 1.5, false}, {1, 0.5, 1.51, true}, {1, 0.5, float32(nan), true}, {1, inf, float32(nan), true},
		{nan, 1, 1, true}, {1, nan, 1.5, true}, {0, 0, float32(math.Copysign(0, -1)), false}, {1, 1, float32(inf), true}, {1, inf, float32(inf), true}, {1, inf, 7, false},
	} {
		b := independent.Bounded{Value: []float64{0, c.value}, Bound: []float64{1, c.bound}}
		i, ratio := b.Worst([]float32{0.5, c.got})
		if (ratio > 1) != c.outside || c.outside && i != 1 {
			t.Errorf("%v within %v of %v: ratio %v at %d", c.got, c.bound, c.value, ratio, i)
		}
	}
	j := independent.Bounded{Value: []float64{1, 2}, Bound: []float64{0.5, 0.25}}.Judge("x", []float32{1, 3})
	if want := (independent.Judged{Name: "x", Index: 1, Ratio: 4, Got: 3, Want: 2, Bound: 0.25, Width: 0.25, Elements: 2, NormRatio: math.Sqrt2}); j != want || !j.Outside() {
		t.Errorf("judged %+v, want %+v", j, want)
	}
	if got, want := j.String(), "x[1] is 3, evaluated 2: 4 of the bound 0.25"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if _, ratio := (independent.Bounded{Value: []float64{1}, Bound: []float64{1}}).Worst(nil); !(ratio > 1) {
		t.Error("a tensor of another length is inside")
	}
}
