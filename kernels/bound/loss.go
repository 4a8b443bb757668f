package bound

import (
	"math"

	"github.com/lockstep-ml/lockstep/kernels"
)

// Embedding copies rows.
func (b *Backend) Embedding(x, table kernels.Tensor, tokens []int32, first int) {
	kernels.CheckEmbedding(x, table, tokens)
	rows := b.load(table)
	e := make([]float64, x.Len())
	for i, tok := range tokens {
		if r := int(tok) - first; r >= 0 && r < table.Rows {
			copy(e[i*x.Cols:(i+1)*x.Cols], rows.row(r).e)
		}
	}
	b.both(func(k kernels.Kernels, at view) { k.Embedding(at(x), at(table), tokens, first) })
	b.perToken(x, e)
}

// EmbeddingGrad: a sum of the stored value and one value per use, in any order.
func (b *Backend) EmbeddingGrad(dtable, dx kernels.Tensor, tokens []int32, first int) {
	kernels.CheckEmbeddingGrad(dtable, dx, tokens)
	table, d := b.load(dtable), b.load(dx)
	s := newSums(dtable.Len())
	for i := range s.n {
		s.err[i], s.most[i] = table.e[i], table.at(i).most()
	}
	for i, tok := range tokens {
		r := int(tok) - first
		if r < 0 || r >= dtable.Rows {
			continue
		}
		for j := range dx.Cols {
			v := d.at(i*dx.Cols + j)
			at := r*dx.Cols + j
			s.err[at] += v.e
			s.most[at] += v.most()
			s.n[at]++
		}
	}
	e := each(len(s.n), func(i int) value { return sum(0, s.err[i], s.most[i], s.n[i]) })
	b.both(func(k kernels.Kernels, at view) { k.EmbeddingGrad(at(dtable), at(dx), tokens, first) })
	b.store(dtable, e)
}

// LogitsMax: the maximum lies between those of the lower and of the upper ends;
// the target logit is copied.
func (b *Backend) LogitsMax(top, target, z kernels.Tensor, targets []int32, first int) {
	kernels.CheckLogitsMax(top, target, z, targets)
	p := b.load(z)
	em, et := make([]float64, z.Rows), make([]float64, z.Rows)
	for i, y := range targets {
		row := p.row(i)
		em[i] = maximum(z.Cols, row.at)
		if j := int(y) - first; j >= 0 && j < z.Cols {
			et[i] = row.e[j]
		}
	}
	b.both(func(k kernels.Kernels, at view) { k.LogitsMax(at(top), at(target), at(z), targets, first) })
	b.perToken(top, em)
	b.perToken(target, et)
}

// maximum is the bound of the maximum of n values.
func maximum(n int, at func(i int) value) float64 {
	m, low, high := math.Inf(-1), math.Inf(-1), math.Inf(-1)
	for i := range n {
		v := at(i)
		m, low, high = max(m, v.x), max(low, v.x-v.e), max(high, v.x+v.e)
	}
	if n == 0 || m == low && m == high {
		return 0
	}
	return max(m-low, high-m)
}

// A shift of the logits does not change what CrossEntropy computes, so it does
// not matter which maximum an evaluation subtracts. From LogitsExpSum to
// CrossEntropy the bounds of exponentials and sum are therefore those of an
// evaluation that subtracts the exact maximum: an evaluation whose maximum is
// off by k has all of them times exp(-k), within exp(-k) times the bounds.

// LogitsExpSum: an exponential per column, and their sum in any order. An error
// d of the exponent, which is that of the logit and of the subtraction, gives
// exp(x)*(exp(d)-1); exp itself is off by 4u of the result, or by 2^-149.
func (b *Backend) LogitsExpSum(total, z, top kernels.Tensor, groups []int) {
	kernels.CheckLogitsExpSum(total, z, top, groups)
	p, m := b.load(z), b.load(top)
	e, es := make([]float64, 0, z.Len()), make([]float64, z.Rows)
	for i := range z.Rows {
		err, most := 0.0, 0.0
		for j := range z.Cols {
			s := p.at(i*z.Cols + j)
			d := s.e + float64(unit*(math.Abs(s.x-m.x[i])+s.e+m.e[i]))
			x := math.Exp(s.x - m.x[i])
			v := value{x, float64(x * growth(d))}
			v.e += float64(transcendental*v.most()) + tiny
			e = append(e, v.e)
			err += v.e
			most += v.most()
		}
		es[i] = sum(0, err, most, z.Cols).e
	}
	b.both(func(k kernels.Kernels, at view) { k.LogitsExpSum(at(total), at(z), at(top), groups) })
	b.perToken(z, e)
	b.perToken(total, es)
}

// logLikelihood is nll = (m + log S) - t. Where S' is off by d, log S' is off by
// at most d/(S-d), and log itself by 4u of the result. The error of m cancels
// against that of log S, and only makes both larger for their roundings.
func logLikelihood(m, s, t value) value {
	low := s.x - s.e
	if !(low > 0) {
		return value{0, math.Inf(1)}
	}
	l := value{math.Log(s.x), s.e / low}
	size := math.Abs(l.x) + l.e + m.e
	l.e += float64(transcendental * size)
	v := value{m.x + l.x, l.e + float64(unit*(m.most()+size))}
	return sub(v, t)
}

// quotient is p_j = z_j/S where S is the sum of the z, of which e_S is the sum
// of the errors and a rounding:
//
//	z'_j S - z_j S' = d_j (S - z_j) - z_j (d_S - d_j),  so
//	|p'_j - p_j| <= (e_j (S-z_j) + z_j (e_S-e_j)) / (S (S-e_S)).
func quotient(z, s value) value {
	low := s.x - s.e
	if !(low > 0) {
		return value{z.x / s.x, math.Inf(1)}
	}
	e := float64(z.e*math.Abs(s.x-z.x)) + float64(z.x*max(0, s.e-z.e))
	return value{z.x / s.x, e / s.x / low}.rounded()
}

// CrossEntropy: p from quotient, then (p - [v=y])/N, where 1/N rounds once. It
// takes z and total for what LogitsExpSum left.
func (b *Backend) CrossEntropy(nll, z, total, top, target kernels.Tensor, targets []int32, first int, invN float64) {
	kernels.CheckCrossEntropy(nll, z, total, top, target, targets)
	p, s, m, t := b.load(z), b.load(total), b.load(top), b.load(target)
	e, en := make([]float64, z.Len()), make([]float64, z.Rows)
	for i, y := range targets {
		if y < 0 {
			continue
		}
		en[i] = logLikelihood(m.at(i), s.at(i), t.at(i)).e
		for j := range z.Cols {
			v := quotient(p.at(i*z.Cols+j), s.at(i))
			if first+j == int(y) {
				v = sub(v, value{1, 0})
			}
			e[i*z.Cols+j] = mul(v, scalar(invN)).e
		}
	}
	b.both(func(k kernels.Kernels, at view) {
		k.CrossEntropy(at(nll), at(z), at(total), at(top), at(target), targets, first, invN)
	})
	b.perToken(nll, en)
	b.perToken(z, e)
}
