package independent

import "math"

// heads addresses the heads of a matrix of tokens: element d of head h of token t
// of sequence q.
type heads struct {
	matrix
	seqLen, dim int
}

// row gives the index of the first element.
func (h heads) row(seq, t, head int) int { return (seq*h.seqLen+t)*h.cols + head*h.dim }

// dot is the sum of n products of a from i on and b from j on, of n roundings.
func dot(a matrix, i int, b matrix, j, n int, g float64) value {
	s, size := value{}, 0.0
	for d := range n {
		p := a.at(i + d).times(b.at(j + d))
		s = s.plus(p)
		size += math.Abs(p.v) + p.e
	}
	s.e += g*size + float64(n)*tiny
	return s
}

// attention is causal self-attention of rotated queries and keys: query head h
// attends with key head h/(Heads/KVHeads) to the keys 0..t of its sequence.
type attention struct {
	q, k, v heads
	scale   value
	group   int // query heads of a key head
}

func (m *Model) attention(q, k, v matrix) *attention {
	s := &m.shape
	h := func(x matrix) heads { return heads{x, s.SeqLen, s.HeadDim} }
	return &attention{q: h(q), k: h(k), v: h(v), scale: host(1 / math.Sqrt(float64(s.HeadDim))), group: s.Heads / s.KVHeads}
}

// weights computes the probabilities of a query over the keys 0..t.
func (a *attention) weights(seq, t, head int, s, p []value) {
	g := gamma(a.q.dim)
	at := a.q.row(seq, t, head)
	for j := range t + 1 {
		s[j] = dot(a.q.matrix, at, a.k.matrix, a.k.row(seq, j, head/a.group), a.q.dim, g).mul(a.scale)
	}
	softmax(s[:t+1], p[:t+1], lanes(t+1))
}

// forward is o = sum over keys of p_j*v_j.
func (a *attention) forward() matrix {
	o := newMatrix(a.q.rows, a.q.cols)
	n, dim := a.q.seqLen, a.q.dim
	parallel(a.q.rows/n, func(seq int) {
		s, p := make([]value, n), make([]value, n)
		for head := range a.q.cols / dim {
			for t := range n {
				a.weights(seq, t, head, s, p)
				g := gamma(t + 1)
				at := a.q.row(seq, t, head)
				for j := range t + 1 {
					a.v.add(o, at, p[j], a.v.row(seq, j, head/a.group), g)
				}
			}
		}
	})
	return o.settle(n)
}

// add adds the products of p and the head's row at from to out at to, each with
// its share of a sum whose roundings amount to g.
func (h heads) add(out matrix, to int, p value, from int, g float64) {
	for d := range h.dim {
		x := p.times(h.at(from + d))
		out.v[to+d] += x.v
		out.e[to+d] += x.e + g*(math.Abs(x.v)+x.e)
	}
}

// backward takes the gradient of forward's result. With dp_j = do.v_j:
// ds_j = (p_j*(dp_j - sum p*dp))*scale; dq = sum ds_j*k_j; dk_j, dv_j are sums
// over the query heads of the key head and the queries t >= j, of at most
// group*T roundings.
//
// Where all dp_j are equal, as they are where all values are, every ds_j is 0: what
// cancels are p_j*dp_j*scale and p_j*mean*scale, times a key or a query.
func (a *attention) backward(do matrix) (dq, dk, dv matrix) {
	dq, dk, dv = newMatrix(a.q.rows, a.q.cols), newMatrix(a.k.rows, a.k.cols), newMatrix(a.k.rows, a.k.cols)
	n, dim := a.q.seqLen, a.q.dim
	out := heads{do, n, dim}
	many := gamma(a.group * n)
	terms := make([][2]float64, a.q.rows/n) // of dq and dk, by sequence
	parallel(a.q.rows/n, func(seq int) {
		s, p, ds := make([]value, n), make([]value, n), make([]value, n)
		size := make([]float64, n)
		for head := range a.q.cols / dim {
			for t := range n {
				a.weights(seq, t, head, s, p)
				at := a.q.row(seq, t, head)
				a.scores(out, seq, t, head, p, ds, size)
				query := a.q.largest(at)
				for j := range t + 1 {
					key := a.k.row(seq, j, head/a.group)
					terms[seq][0] = max(terms[seq][0], size[j]*a.k.largest(key))
					terms[seq][1] = max(terms[seq][1], size[j]*query)
					a.k.add(dq, at, ds[j], key, gamma(t+1))
					a.q.add(dk, key, ds[j], at, many)
					out.add(dv, key, p[j], at, many)
				}
			}
		}
	})
	for _, x := range terms {
		dq.term, dk.term = max(dq.term, x[0]), max(dk.term, x[1])
	}
	return dq.settle(n), dk.settle(a.group * n), dv.settle(a.group * n)
}

// largest is the largest magnitude in the head's row at from.
func (h heads) largest(from int) float64 {
	top := 0.0
	for d := range h.dim {
		top = max(top, math.Abs(h.v[from+d]))
	}
	return top
}

// scores is the gradient of the scores of a query, and the size of the terms that each
// is a difference of.
func (a *attention) scores(do heads, seq, t, head int, p, ds []value, size []float64) {
	g, at := gamma(a.q.dim), a.q.row(seq, t, head)
	mean, all := value{}, 0.0
	for j := range t + 1 {
		ds[j] = dot(do.matrix, at, a.v.matrix, a.v.row(seq, j, head/a.group), a.q.dim, g)
		x := p[j].times(ds[j])
		size[j] = math.Abs(x.v) * a.scale.v
		mean = mean.plus(x)
		all += math.Abs(x.v) + x.e
	}
	mean.e += gamma(lanes(t+1))*all + float64(t+1)*tiny
	for j := range t + 1 {
		ds[j] = p[j].mul(ds[j].sub(mean)).mul(a.scale)
	}
}
