package ref_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// TestEmbedding: tokens below, in and beyond a slice of the vocabulary; -0
// becomes +0; the gradient continues and repeats add up in order.
func TestEmbedding(t *testing.T) {
	d := newDesk(t)
	const first, v, h = 4, 3, 5
	tokens := []int32{5, 3, 7, 4, 6, 5, 5, -1}
	table, ts := d.random(v, h)
	dx, dxs := d.random(len(tokens), h)
	dtable, dts := d.random(v, h)
	ts[h] = minusZ
	d.Write(table, ts)
	want := make([]float32, len(tokens)*h)
	for i, tok := range tokens {
		if tok < first || tok >= first+v {
			continue
		}
		for j := range h {
			at := (int(tok)-first)*h + j
			want[i*h+j] = ts[at]
			if ts[at] == 0 {
				want[i*h+j] = 0
			}
			dts[at] += dxs[i*h+j]
		}
	}
	x := d.dirty(len(tokens), h)
	d.Embedding(x, table, tokens, first)
	d.want("x", x, want)
	d.EmbeddingGrad(dtable, dx, tokens, first)
	d.want("dtable", dtable, dts)
}

// TestCrossEntropy runs the three kernels of the loss over a slice of the
// vocabulary, and with a mean over 3 tokens.
func TestCrossEntropy(t *testing.T) {
	d := newDesk(t)
	const first, invN = 10, 1.0 / 3
	targets := []int32{10, -1, 9, 40, 200}
	n := len(targets)
	for _, v := range []int{0, 1, 33, 70} {
		for _, groups := range [][]int{nil, shard.Bounds(v, 4), shard.Bounds(v, 3)} {
			z, zs := d.random(n, v)
			if v > 0 {
				zs[0] = minusZ // the first row's target
				d.Write(z, zs)
			}
			sums := make([]float32, n)
			m, hit, nll := make([]float32, n), make([]float32, n), make([]float32, n)
			e, grad := make([]float32, n*v), make([]float32, n*v)
			for i, y := range targets {
				row := zs[i*v : (i+1)*v]
				m[i] = -inf
				for j, x := range row {
					if x > m[i] {
						m[i] = x
					}
					if first+j == int(y) {
						hit[i] = x
					}
				}
				if hit[i] == 0 {
					hit[i] = 0 // -0 too
				}
				for j, x := range row {
					e[i*v+j] = ref.Exp32(x - m[i])
				}
				cut, leaves := bounds(groups, v), []float32(nil)
				for g := range cut[1:] {
					leaves = append(leaves, naiveLanesSum(e[i*v+cut[g]:i*v+cut[g+1]]))
				}
				sums[i] = naiveTree(leaves)
				if y < 0 {
					continue
				}
				nll[i] = (m[i] + ref.Log32(sums[i])) - hit[i]
				for j := range row {
					p := e[i*v+j] / sums[i]
					if first+j == int(y) {
						p = p - 1
					}
					grad[i*v+j] = p * float32(invN)
				}
			}
			what := fmt.Sprint(v, groups)
			max, target, sum, loss := d.dirty(1, n), d.dirty(1, n), d.dirty(1, n), d.dirty(1, n)
			d.LogitsMax(max, target, z, targets, first)
			d.want("max "+what, max, m)
			d.want("target "+what, target, hit)
			d.LogitsExpSum(sum, z, max, groups)
			d.want("exponentials "+what, z, e)
			d.want("sum "+what, sum, sums)
			d.CrossEntropy(loss, z, sum, max, target, targets, first, invN)
			d.want("nll "+what, loss, nll)
			d.want("dz "+what, z, grad)
		}
	}
}

func TestAdamW(t *testing.T) {
	d := newDesk(t)
	p := kernels.AdamWParams{LR: 0.01, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, Decay: 0.1, C1: 0.271, C2: 0.142625, Coef: 0.7}
	b1, b2 := float32(p.Beta1), float32(p.Beta2)
	// The floats next to 0.1 and 0.001; 1 minus the rounded betas is 0x3dccccd0
	// and 0x3a831200.
	r1, r2 := math.Float32frombits(0x3dcccccd), math.Float32frombits(0x3a83126f)
	const n = 77
	w, ws := d.random(1, n)
	m, ms := d.random(1, n)
	v, vs := d.random(1, n)
	g, gs := d.random(1, n)
	for i := range vs {
		vs[i] = max(vs[i], -vs[i])
	}
	d.Write(v, vs)
	for i := range ws {
		x := float32(gs[i] * float32(p.Coef))
		ms[i] = ref.FMA32(r1, x, b1*ms[i])
		vs[i] = ref.FMA32(r2, x*x, b2*vs[i])
		u := float32(ms[i]/float32(p.C1)) / (sqrt32(vs[i]/float32(p.C2)) + float32(p.Eps))
		u = ref.FMA32(float32(p.Decay), ws[i], u)
		ws[i] = ref.FMA32(-float32(p.LR), u, ws[i])
	}
	d.AdamW(w, m, v, g, p)
	d.want("m", m, ms)
	d.want("v", v, vs)
	d.want("w", w, ws)
	d.want("g", g, gs)
}

func TestSGD(t *testing.T) {
	d := newDesk(t)
	p := kernels.SGDParams{LR: 0.01, Momentum: 0.9, Decay: 0.1, Coef: 0.7}
	const n = 77
	w, ws := d.random(1, n)
	b, bs := d.random(1, n)
	g, gs := d.random(1, n)
	for i := range ws {
		x := float32(gs[i] * float32(p.Coef))
		x = ref.FMA32(float32(p.Decay), ws[i], x)
		bs[i] = ref.FMA32(float32(p.Momentum), bs[i], x)
		ws[i] = ref.FMA32(-float32(p.LR), bs[i], ws[i])
	}
	d.SGD(w, b, g, p)
	d.want("b", b, bs)
	d.want("w", w, ws)
	d.want("g", g, gs)
}
