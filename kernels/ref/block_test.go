package ref_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

func sqrt32(x float32) float32 { return float32(math.Sqrt(float64(x))) }

func TestRMSNorm(t *testing.T) {
	d := newDesk(t)
	const eps = 1e-5
	for _, s := range [][2]int{{0, 4}, {1, 1}, {2, 31}, {3, 32}, {2, 33}, {2, 71}} {
		n, h := s[0], s[1]
		x, xs := d.random(n, h)
		w, ws := d.random(1, h)
		res, rs := d.random(n, h)
		dy, dys := d.random(n, h)
		dw, dws := d.random(1, h)
		want, wantR := make([]float32, n*h), make([]float32, n)
		wantDX, wantRes := make([]float32, n*h), make([]float32, n*h)
		for i := range n {
			row, g := xs[i*h:(i+1)*h], dys[i*h:(i+1)*h]
			r := 1 / sqrt32(naiveLanesDot(row, row)/float32(h)+float32(eps))
			wantR[i] = r
			xh, dd := make([]float32, h), make([]float32, h)
			for j, v := range row {
				xh[j] = v * r
				dd[j] = g[j] * ws[j]
				want[i*h+j] = float32(xh[j] * ws[j])
			}
			c := naiveLanesDot(dd, xh) / float32(h)
			for j := range row {
				y := float32(ref.FMA32(-c, xh[j], dd[j]) * r)
				wantDX[i*h+j], wantRes[i*h+j] = y, rs[i*h+j]+y
				dws[j] = ref.FMA32(g[j], xh[j], dws[j])
			}
		}
		y, rstd, dx := d.dirty(n, h), d.dirty(1, n), d.dirty(n, h)
		d.RMSNorm(y, rstd, x, w, eps)
		d.want(fmt.Sprint("y ", s), y, want)
		d.want(fmt.Sprint("rstd ", s), rstd, wantR)
		d.RMSNormGrad(dx, dw, dy, x, rstd, w, kernels.Tensor{})
		d.want(fmt.Sprint("dx ", s), dx, wantDX)
		d.want(fmt.Sprint("dw ", s), dw, dws)
		d.Fill(dw, 0)
		d.RMSNormGrad(res, dw, dy, x, rstd, w, res)
		d.want(fmt.Sprint("dx on res ", s), res, wantRes)
		d.RMSNormGrad(dy, dw, dy, x, rstd, w, kernels.Tensor{})
		d.want(fmt.Sprint("dx on dy ", s), dy, wantDX)
	}
}

func TestRope(t *testing.T) {
	d := newDesk(t)
	const half, heads, positions, n = 3, 2, 4, 9
	x, xs := d.random(n, heads*2*half)
	cos, cs := d.random(positions, half)
	sin, ss := d.random(positions, half)
	for _, inverse := range []bool{false, true} {
		for i := range n {
			for h := range heads {
				for j := range half {
					p, q := i*heads*2*half+h*2*half+j, i*heads*2*half+h*2*half+j+half
					a, b, c, s := xs[p], xs[q], cs[i%positions*half+j], ss[i%positions*half+j]
					if inverse {
						s = -s
					}
					xs[p], xs[q] = ref.FMA32(-b, s, a*c), ref.FMA32(a, s, b*c)
				}
			}
		}
		d.Rope(x, cos, sin, inverse)
		d.want(fmt.Sprint("inverse ", inverse), x, xs)
	}
}

var headShapes = []kernels.Heads{
	{Seqs: 0, T: 3, Heads: 2, KVHeads: 1, Dim: 4, KVGroups: 1},
	{Seqs: 1, T: 0, Heads: 2, KVHeads: 1, Dim: 4, KVGroups: 2},
	{Seqs: 2, T: 3, Heads: 0, KVHeads: 0, Dim: 4, KVGroups: 1},
	{Seqs: 2, T: 3, Heads: 2, KVHeads: 2, Dim: 0, KVGroups: 1},
	{Seqs: 1, T: 1, Heads: 1, KVHeads: 1, Dim: 1, KVGroups: 1, Scale: 0.3},
	{Seqs: 2, T: 6, Heads: 4, KVHeads: 2, Dim: 5, KVGroups: 1, Scale: 0.4},
	{Seqs: 1, T: 35, Heads: 6, KVHeads: 1, Dim: 3, KVGroups: 3, Scale: 0.6},
	{Seqs: 2, T: 5, Heads: 8, KVHeads: 2, Dim: 4, KVGroups: 4, Scale: 0.5},
}

// token is token t of head i of n in sequence seq, in a matrix of tokens.
func token(x []float32, h kernels.Heads, n, seq, t, i int) []float32 {
	lo := ((seq*h.T+t)*n + i) * h.Dim
	return x[lo : lo+h.Dim]
}

func dotNaive(a, b []float32) float32 {
	return naiveChain(0, len(a), func(i int) float32 { return a[i] }, func(i int) float32 { return b[i] })
}

// naiveAttention gives o and p; p beyond the diagonal stays NaN.
func naiveAttention(q, k, v []float32, h kernels.Heads) (o, p []float32) {
	o = make([]float32, len(q))
	p = make([]float32, h.Seqs*h.Heads*h.T*h.T)
	for i := range p {
		p[i] = nan
	}
	for seq := range h.Seqs {
		for i := range h.Heads {
			kv := i / (h.Heads / h.KVHeads)
			for t := range h.T {
				row := p[((seq*h.Heads+i)*h.T+t)*h.T:][:t+1]
				m := -inf
				for j := range row {
					row[j] = dotNaive(token(q, h, h.Heads, seq, t, i), token(k, h, h.KVHeads, seq, j, kv)) * float32(h.Scale)
					m = max(m, row[j])
				}
				for j := range row {
					row[j] = ref.Exp32(row[j] - m)
				}
				sum := naiveLanesSum(row)
				for j := range row {
					row[j] /= sum
				}
				for e := range h.Dim {
					token(o, h, h.Heads, seq, t, i)[e] = naiveChain(0, t+1,
						func(j int) float32 { return row[j] },
						func(j int) float32 { return token(v, h, h.KVHeads, seq, j, kv)[e] })
				}
			}
		}
	}
	return o, p
}

// naiveScores gives ds, shaped like p.
func naiveScores(do, p, v []float32, h kernels.Heads) []float32 {
	ds := make([]float32, len(p))
	for seq := range h.Seqs {
		for i := range h.Heads {
			for t := range h.T {
				at := ((seq*h.Heads+i)*h.T + t) * h.T
				dp := make([]float32, t+1)
				for j := range dp {
					dp[j] = dotNaive(token(do, h, h.Heads, seq, t, i), token(v, h, h.KVHeads, seq, j, i/(h.Heads/h.KVHeads)))
				}
				mean := naiveLanesDot(p[at:at+t+1], dp)
				for j := range dp {
					ds[at+j] = float32(p[at+j]*(dp[j]-mean)) * float32(h.Scale)
				}
			}
		}
	}
	return ds
}

// naiveKeyGrad is the gradient of k (from ds and q) or of v (from p and do):
// a tree over key groups of one chain over (head, query) each.
func naiveKeyGrad(s, x []float32, h kernels.Heads) []float32 {
	out := make([]float32, h.Seqs*h.T*h.KVHeads*h.Dim)
	if h.KVHeads == 0 {
		return out
	}
	share := h.Heads / h.KVHeads
	for seq := range h.Seqs {
		for kv := range h.KVHeads {
			for j := range h.T {
				for e := range h.Dim {
					leaves := make([]float32, h.KVGroups)
					for i := kv * share; i < (kv+1)*share; i++ {
						leaf := &leaves[(i-kv*share)/(share/h.KVGroups)]
						for t := j; t < h.T; t++ {
							*leaf = ref.FMA32(s[((seq*h.Heads+i)*h.T+t)*h.T+j], token(x, h, h.Heads, seq, t, i)[e], *leaf)
						}
					}
					token(out, h, h.KVHeads, seq, j, kv)[e] = naiveTree(leaves)
				}
			}
		}
	}
	return out
}

func TestAttention(t *testing.T) {
	d := newDesk(t)
	for _, h := range headShapes {
		n := h.Seqs * h.T
		q, qs := d.random(n, h.Heads*h.Dim)
		k, ks := d.random(n, h.KVHeads*h.Dim)
		v, vs := d.random(n, h.KVHeads*h.Dim)
		do, dos := d.random(n, h.Heads*h.Dim)
		wantO, wantP := naiveAttention(qs, ks, vs, h)
		o, p := d.dirty(n, h.Heads*h.Dim), d.dirty(h.Seqs*h.Heads*h.T, h.T)
		d.Attention(o, p, q, k, v, h)
		d.want(fmt.Sprintf("o %+v", h), o, wantO)
		d.want(fmt.Sprintf("p %+v", h), p, wantP)

		ds := naiveScores(dos, wantP, vs, h)
		wantDQ := make([]float32, len(qs))
		for seq := range h.Seqs {
			for i := range h.Heads {
				for u := range h.T {
					row := ds[((seq*h.Heads+i)*h.T+u)*h.T:][:u+1]
					for e := range h.Dim {
						token(wantDQ, h, h.Heads, seq, u, i)[e] = naiveChain(0, u+1,
							func(j int) float32 { return row[j] },
							func(j int) float32 { return token(ks, h, h.KVHeads, seq, j, i/(h.Heads/h.KVHeads))[e] })
					}
				}
			}
		}
		dq, dk, dv := d.dirty(n, h.Heads*h.Dim), d.dirty(n, h.KVHeads*h.Dim), d.dirty(n, h.KVHeads*h.Dim)
		d.AttentionGrad(dq, dk, dv, do, p, q, k, v, h)
		d.want(fmt.Sprintf("dq %+v", h), dq, wantDQ)
		d.want(fmt.Sprintf("dk %+v", h), dk, naiveKeyGrad(ds, qs, h))
		d.want(fmt.Sprintf("dv %+v", h), dv, naiveKeyGrad(wantP, dos, h))
	}
}

func TestSwiGLU(t *testing.T) {
	d := newDesk(t)
	for _, n := range []int{0, 1, 50} {
		z, zs := d.random(1, n)
		u, us := d.random(1, n)
		dh, dhs := d.random(1, n)
		h, dz, du := make([]float32, n), make([]float32, n), make([]float32, n)
		for i, x := range zs {
			sg := 1 / (1 + ref.Exp32(-x))
			h[i] = float32(x*sg) * us[i]
			du[i] = dhs[i] * float32(x*sg)
			dz[i] = float32(dhs[i]*us[i]) * float32(sg*ref.FMA32(x, 1-sg, 1))
		}
		out, gz, gu := d.dirty(1, n), d.dirty(1, n), d.dirty(1, n)
		d.SwiGLU(out, z, u)
		d.want("h", out, h)
		d.SwiGLUGrad(gz, gu, dh, z, u)
		d.want("dz", gz, dz)
		d.want("du", gu, du)
		on := d.put(1, n, us)
		d.SwiGLU(on, z, on)
		d.want("h on u", on, h)
		d.SwiGLUGrad(dh, u, dh, z, u)
		d.want("dz on dh", dh, dz)
		d.want("du on u", u, du)
	}
}
