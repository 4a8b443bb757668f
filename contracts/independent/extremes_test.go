package independent_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/lockstep-ml/lockstep/contracts/independent"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/internal/race"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// judgeDense runs core's model in float32 on a batch and judges all it computed,
// pinned and unpinned.
func judgeDense(t *testing.T, s independent.Shape, w map[string][]float32, b independent.Batch) (pinned, whole *tally) {
	t.Helper()
	c := model.Config{Name: "any", Vocab: s.Vocab, Hidden: s.Hidden, Layers: s.Layers, Heads: s.Heads, KVHeads: s.KVHeads, HeadDim: s.HeadDim,
		Intermediate: s.Intermediate, SeqLen: s.SeqLen, Tied: s.Tied, QKVBias: s.QKVBias, LinearBias: s.LinearBias, NormEps: s.NormEps, RopeTheta: s.RopeTheta}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	be := &tape{Backend: ref.New[float32](), layers: s.Layers, kept: map[string][]float32{}}
	d := evaluated(t, be, c, w, b)
	read := func(x kernels.Tensor) []float32 {
		out := make([]float32, x.Len())
		if err := be.Read(out, x); err != nil {
			t.Fatal(err)
		}
		return out
	}
	m := newModel(t, s, w)
	pinned, whole = &tally{}, &tally{}
	for y, pins := range map[*tally]independent.Pins{pinned: be.kept, whole: nil} {
		got := evaluate(t, m, b, pins)
		y.add(t, "loss", got.Loss, read(d.Loss()))
		d.Params(func(p *model.Param) { y.add(t, p.Name, got.Gradients[p.Name], read(d.Gradient(p))) })
		for _, j := range got.Judged {
			y.take(t, j)
		}
	}
	return pinned, whole
}

// Bounds hold for random shapes, one of everything among them.
func TestBoundsHoldForAnyShape(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for i := range len(race.Some(10, make([]int, 60))) {
		kv, dim := 1+r.IntN(3), 2*(1+r.IntN(4))
		s := independent.Shape{Vocab: 1 + r.IntN(40), Hidden: 1 + r.IntN(40), Layers: 1 + r.IntN(3), Heads: kv * (1 + r.IntN(3)), KVHeads: kv, HeadDim: dim,
			Intermediate: 1 + r.IntN(70), SeqLen: 1 + r.IntN(40), Tied: i%2 == 0, QKVBias: i%3 == 0, LinearBias: i%5 == 0,
			NormEps: []float64{1e-5, 1e-2, 1e-12}[i%3], RopeTheta: []float64{1, 20, 1e6}[i%3], InitStd: 0.3, InitBias: 0.2}
		y, _ := judgeDense(t, s, weights(s), batchOf(s, 1+r.IntN(4)))
		if t.Failed() {
			t.Fatalf("shape %+v: %v", s, y)
		}
	}
}

// Bounds hold where weights are huge, so that gates and scores saturate and
// probabilities vanish, and where they are so small that products are subnormal.
func TestBoundsHoldAtExtremes(t *testing.T) {
	for _, scale := range []struct {
		what string
		by   float64
	}{
		{"self_attn.q_proj.weight", 300}, {"self_attn.k_proj.weight", 3000}, {"mlp.gate_proj.weight", 100}, {"mlp.gate_proj.weight", -1000}, {"mlp.up_proj.weight", 1e15},
		{"lm_head.weight", 200}, {"lm_head.weight", 1e-30}, {"model.embed_tokens.weight", 1e-18}, {"model.embed_tokens.weight", 1e17}, {"self_attn.v_proj.weight", 1e-30},
		{"mlp.down_proj.weight", 1e-25}, {"mlp.down_proj.weight", 1e20}, {"input_layernorm.weight", 1e-20}, {"model.norm.weight", 1e-22}, {"model.norm.weight", 1e3}, {"self_attn.o_proj.weight", 1e18},
	} {
		t.Run(fmt.Sprintf("%s %g", scale.what, scale.by), func(t *testing.T) {
			s := small(false)
			w := weights(s)
			for name, x := range w {
				if len(name) >= len(scale.what) && name[len(name)-len(scale.what):] == scale.what {
					for i := range x {
						x[i] = float32(float64(x[i]) * scale.by)
					}
				}
			}
			y, _ := judgeDense(t, s, w, batchOf(s, 4))
			t.Log(y)
		})
	}
}

// Updates hold from subnormal gradients to huge ones, for weights of any size,
// whatever the fields.
func TestUpdatesHoldAtExtremes(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	wide := func() float32 {
		return float32(math.Copysign(math.Exp2(r.Float64()*120-90), r.Float64()-0.5))
	}
	const n = 3000
	p := independent.Param{Name: "x", Rows: 1, Cols: n, Decays: true}
	for i := range 40 {
		o := independent.Optimizer{Name: []string{"adamw", "sgd"}[i%2], LR: math.Exp2(-r.Float64() * 20), Beta1: r.Float64(), Beta2: 1 - math.Exp2(-r.Float64()*12),
			Eps: math.Exp2(-r.Float64() * 40), Momentum: r.Float64(), Decay: r.Float64(), Arithmetic: kernels.Arithmetic}
		be := ref.New[float32]()
		var x [4]kernels.Tensor
		var had [4][]float32
		for j := range x {
			buf, err := be.Alloc(n)
			if err != nil {
				t.Fatal(err)
			}
			had[j] = make([]float32, n)
			for k := range had[j] {
				had[j][k] = wide()
				if r.IntN(20) == 0 {
					had[j][k] = 0
				}
				if j == 3 { // second moments are not negative
					had[j][k] = float32(math.Abs(float64(had[j][k])))
				}
			}
			x[j] = kernels.Flat(buf)
			be.Write(x[j], had[j])
		}
		taken, coef := r.IntN(30), r.Float64()
		lr := o.Rate(taken)
		moments := had[2:4]
		if o.Name == "sgd" {
			moments = had[2:3]
			be.SGD(x[0], x[2], x[1], kernels.SGDParams{LR: lr, Momentum: o.Momentum, Decay: o.Decay, Coef: coef})
		} else {
			be.AdamW(x[0], x[2], x[3], x[1], kernels.AdamWParams{LR: lr, Beta1: o.Beta1, Beta2: o.Beta2, Eps: o.Eps, Decay: o.Decay, Coef: coef,
				C1: 1 - math.Pow(o.Beta1, float64(taken+1)), C2: 1 - math.Pow(o.Beta2, float64(taken+1))})
		}
		w, m, err := o.Update(p, had[0], had[1], moments, taken, lr, coef)
		if err != nil {
			t.Fatal(err)
		}
		y := &tally{}
		for j, want := range append([]independent.Bounded{w}, m...) {
			got := ref.Data[float32](x[[]int{0, 2, 3}[j]])
			y.add(t, fmt.Sprintf("%s %d", o.Name, j), want, got)
		}
		if t.Failed() {
			t.Fatalf("%+v taken %d coef %v: %v", o, taken, coef, y)
		}
	}
}
