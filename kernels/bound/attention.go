package bound

import (
	"math"

	"github.com/lockstep-ml/lockstep/kernels"
)

// head is one row's part of one head, as an operand of one row.
func head(o operand, row, h, dim int) operand {
	lo := row*o.cols + h*dim
	return operand{1, dim, o.x[lo : lo+dim], o.e[lo : lo+dim]}
}

// softmax is p_j = exp(s_j - m)/sum of one row of scores. What matters are the
// errors of the exponents, a_j: of the score, of subtracting the maximum (the
// exact value does not depend on which m is subtracted, so its error cancels),
// and of exp as a factor. With E_j = exp(a_j)-1 and T = sum of p_j E_j, p_j grows
// or shrinks by at most
//
//	p_j * ((1-p_j) E_j + sum over k != j of p_k E_k) / (1-T)
//
// (write p'_j = p_j exp(d_j) / sum of p_k exp(d_k) with |d_k| <= a_k). The sum
// of n exponentials and the division add n+1 roundings; an exponential in the
// subnormal range is off by 2^-149 of a sum that is at least about 1.
func softmax(s operand) operand {
	n := s.cols
	top, far := math.Inf(-1), 0.0
	for j := range n {
		top, far = max(top, s.x[j]), max(far, s.e[j])
	}
	p := operand{1, n, make([]float64, n), make([]float64, n)}
	grow := make([]float64, n)
	total := 0.0
	for j := range n {
		a := s.e[j] + float64(unit*(top-s.x[j]+s.e[j]+far)) + transcendental + unit
		grow[j] = growth(a)
		p.x[j] = math.Exp(s.x[j] - top)
		total += p.x[j]
	}
	t := 0.0
	for j := range n {
		p.x[j] /= total
		t += float64(p.x[j] * grow[j])
	}
	for j := range n {
		if !(t < 1) {
			p.e[j] = math.Inf(1)
			continue
		}
		own := float64(p.x[j] * grow[j])
		e := float64(p.x[j]*(float64((1-p.x[j])*grow[j])+max(0, t-own))) / (1 - t)
		p.e[j] = e + float64(gamma(n+1)*(p.x[j]+e)) + float64(tiny*float64(n+4))
	}
	return p
}

// scores are s_j = (q.k_j)*scale for the keys up to t of one head.
func scores(q, k operand, seq, t, kh int, h kernels.Heads, query operand) operand {
	s := operand{1, t + 1, make([]float64, t+1), make([]float64, t+1)}
	for j := range t + 1 {
		v := mul(dot(query, head(k, seq*h.T+j, kh, h.Dim)), scalar(h.Scale))
		s.x[j], s.e[j] = v.x, v.e
	}
	return s
}

// Attention: scores, softmax, and the sum of p_j v_j in any order.
func (b *Backend) Attention(o, p, q, k, v kernels.Tensor, h kernels.Heads) {
	kernels.CheckAttention(o, p, q, k, v, h)
	qs, ks, vs := b.load(q), b.load(k), b.load(v)
	eo, ep := make([]float64, o.Len()), b.Bounds(p)
	eachQuery(h, func(seq, hd, t int) {
		row, kh := seq*h.T+t, hd/(h.Heads/h.KVHeads)
		pr := softmax(scores(qs, ks, seq, t, kh, h, head(qs, row, hd, h.Dim)))
		copy(ep[((seq*h.Heads+hd)*h.T+t)*h.T:], pr.e)
		weighted(eo[row*o.Cols+hd*h.Dim:][:h.Dim], pr, vs, seq*h.T, kh)
	})
	b.both(func(kn kernels.Kernels, at view) { kn.Attention(at(o), at(p), at(q), at(k), at(v), h) })
	b.perToken(o, eo)
	b.setVisited(p, ep, h)
}

// eachQuery visits every sequence, query head and query position.
func eachQuery(h kernels.Heads, f func(seq, head, t int)) {
	for seq := range h.Seqs {
		for hd := range h.Heads {
			for t := range h.T {
				f(seq, hd, t)
			}
		}
	}
}

// weighted sets the bounds of the sum over j of w_j times the rows first+j of
// head kh of x.
func weighted(e []float64, w, x operand, first, kh int) {
	for d := range e {
		err, most := 0.0, 0.0
		for j := range w.x {
			i := (first+j)*x.cols + kh*len(e) + d
			p := product(w.at(j), x.at(i))
			err += p.e
			most += p.most()
		}
		e[d] = sum(0, err, most, len(w.x)+1).e
	}
}

// setVisited stores the bounds of probabilities, which lie in the range of
// float32, and leaves those beyond the diagonal alone.
func (b *Backend) setVisited(p kernels.Tensor, e []float64, h kernels.Heads) {
	if b.given {
		b.perToken(p, e)
		return
	}
	to := own(p.Buf).bound[p.Off:]
	eachQuery(h, func(seq, hd, t int) {
		at := ((seq*h.Heads+hd)*h.T + t) * h.T
		for j := range t + 1 {
			to[at+j] = e[at+j] * slack
		}
	})
}

// AttentionGrad: dp_j = do.v_j; ds_j = (p_j (dp_j - c)) * scale with
// c = sum of p_k dp_k; then the sums of products, in any order. The difference
// dp_j - c is bounded with the error of dp_j counted once, (1-p_j) times, as in
// softmax. p is left without bounds.
func (b *Backend) AttentionGrad(dq, dk, dv, do, p, q, k, v kernels.Tensor, h kernels.Heads) {
	kernels.CheckAttentionGrad(dq, dk, dv, do, p, q, k, v, h)
	in := attentionGrad{h: h, do: b.load(do), p: b.load(p), q: b.load(q), k: b.load(k), v: b.load(v)}
	in.dk, in.dv = newSums(dk.Len()), newSums(dv.Len())
	eq := make([]float64, dq.Len())
	eachQuery(h, func(seq, hd, t int) { in.query(seq, hd, t, eq[(seq*h.T+t)*dq.Cols+hd*h.Dim:][:h.Dim]) })
	b.both(func(kn kernels.Kernels, at view) {
		kn.AttentionGrad(at(dq), at(dk), at(dv), at(do), at(p), at(q), at(k), at(v), h)
	})
	b.perToken(dq, eq)
	b.perToken(dk, in.dk.bounds())
	b.perToken(dv, in.dv.bounds())
	b.unbound(p)
}

type attentionGrad struct {
	h              kernels.Heads
	do, p, q, k, v operand
	dk, dv         sums
}

// query bounds one row of dq into eq and adds the row's products to dk and dv.
func (in *attentionGrad) query(seq, hd, t int, eq []float64) {
	h, row, kh, n := in.h, seq*in.h.T+t, hd/(in.h.Heads/in.h.KVHeads), t+1
	do, q := head(in.do, row, hd, h.Dim), head(in.q, row, hd, h.Dim)
	at := ((seq*h.Heads+hd)*h.T + t) * h.T
	p := operand{1, n, in.p.x[at : at+n], in.p.e[at : at+n]}
	dp := operand{1, n, make([]float64, n), make([]float64, n)}
	for j := range n {
		v := dot(do, head(in.v, seq*h.T+j, kh, h.Dim))
		dp.x[j], dp.e[j] = v.x, v.e
	}
	ds := scoreGrad(p, dp, h.Scale)
	weighted(eq, ds, in.k, seq*h.T, kh)
	for j := range n {
		to := (seq*h.T+j)*in.k.cols + kh*h.Dim
		for d := range h.Dim {
			in.dk.add(to+d, product(ds.at(j), q.at(d)))
			in.dv.add(to+d, product(p.at(j), do.at(d)))
		}
	}
}

// scoreGrad is ds_j = (p_j*(dp_j - c))*scale with c = sum of p_k dp_k. The error
// of dp_j - c from the errors of dp is at most (1-p_j) e_j + sum over k != j of
// p'_k e_k, p'_k being within the bound of p_k.
func scoreGrad(p, dp operand, scale float64) operand {
	n := p.cols
	c := dot(p, dp)
	fromDP, fromP := 0.0, 0.0
	for k := range n {
		fromDP += float64(p.at(k).most() * dp.e[k])
		fromP += float64(p.e[k] * math.Abs(dp.x[k]))
	}
	rounding := c.e - fromDP - fromP // of the sum c itself
	ds := operand{1, n, make([]float64, n), make([]float64, n)}
	for j := range n {
		own := float64(math.Abs(1-p.x[j])*dp.e[j]) + float64(p.e[j]*dp.e[j])
		others := max(0, fromDP-float64(p.at(j).most()*dp.e[j]))
		d := value{dp.x[j] - c.x, own + others + fromP + max(0, rounding)}
		d.e += float64(unit*(dp.at(j).most()+c.most())) + tiny
		v := mul(mul(p.at(j), d), scalar(scale))
		ds.x[j], ds.e[j] = v.x, v.e
	}
	return ds
}

// sums gathers the errors and magnitudes of sums of products, and their lengths.
type sums struct {
	err, most []float64
	n         []int
}

func newSums(n int) sums { return sums{make([]float64, n), make([]float64, n), make([]int, n)} }

func (s *sums) add(i int, p value) {
	s.err[i] += p.e
	s.most[i] += p.most()
	s.n[i]++
}

func (s *sums) bounds() []float64 {
	return each(len(s.n), func(i int) value { return sum(0, s.err[i], s.most[i], s.n[i]+1) })
}
