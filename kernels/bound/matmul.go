package bound

import (
	"math"

	"github.com/lockstep-ml/lockstep/kernels"
)

// The three products have one bound. For c = c0 + sum over k of a_k b_k, with
// errors e of the operands, in any order of summation,
//
//	|c' - c| <= e_c0 + sum(|a|e_b + e_a|b| + e_a e_b)
//	            + gamma_{K+1} * (|c0|+e_c0 + sum((|a|+e_a)(|b|+e_b))) + (K+1)*2^-149:
//
// a product passes through at most K+1 roundings, its own and K additions (one
// less where it is fused). The summand of the two sums together is
// |a| e_b + (e_a + gamma*(|a|+e_a)) * (|b|+e_b).

// MatMulNT: groups do not matter to the bound.
func (b *Backend) MatMulNT(c, x, y kernels.Tensor, groups []int) {
	kernels.CheckMatMulNT(c, x, y, groups)
	e := make([]float64, c.Len())
	products(e, b.load(x), b.load(y), x.Cols)
	b.both(func(k kernels.Kernels, at view) { k.MatMulNT(at(c), at(x), at(y), groups) })
	b.perToken(c, e)
}

// MatMulNN: the sum runs through all terms.
func (b *Backend) MatMulNN(c kernels.Tensor, terms []kernels.Term) {
	kernels.CheckMatMulNN(c, terms)
	total := 0
	for _, t := range terms {
		total += t.A.Cols
	}
	e := make([]float64, c.Len())
	for _, t := range terms {
		products(e, b.load(t.A), b.load(t.B).transposed(), total)
	}
	b.both(func(k kernels.Kernels, at view) {
		seen := make([]kernels.Term, len(terms))
		for i, t := range terms {
			seen[i] = kernels.Term{A: at(t.A), B: at(t.B), Groups: t.Groups}
		}
		k.MatMulNN(at(c), seen)
	})
	b.perToken(c, e)
}

// MatMulTN: the stored value takes part in the sum.
func (b *Backend) MatMulTN(c, x, y kernels.Tensor) {
	kernels.CheckMatMulTN(c, x, y)
	start, n := b.load(c), x.Rows
	e := each(c.Len(), func(i int) value { return sum(0, start.e[i], start.at(i).most(), n) })
	products(e, b.load(x).transposed(), b.load(y).transposed(), n)
	b.both(func(k kernels.Kernels, at view) { k.MatMulTN(at(c), at(x), at(y)) })
	b.store(c, e)
}

// transposed has the columns of o as rows.
func (o operand) transposed() operand {
	t := operand{o.cols, o.rows, make([]float64, len(o.x)), make([]float64, len(o.e))}
	for i := range o.rows {
		for j := range o.cols {
			t.x[j*o.rows+i], t.e[j*o.rows+i] = o.x[i*o.cols+j], o.e[i*o.cols+j]
		}
	}
	return t
}

// products adds to e the bounds of x times y transposed, as part of sums of
// total products.
func products(e []float64, x, y operand, total int) {
	if x.cols == 0 {
		return
	}
	g := gamma(total + 1)
	p, q := magnitudes(x), magnitudes(y)
	own := make([]float64, len(x.x)) // e_a + gamma*(|a|+e_a)
	for i := range own {
		own[i] = x.e[i] + float64(g*(p[i]+x.e[i]))
	}
	for i := range q {
		q[i] += y.e[i]
	}
	k := x.cols
	for i := range x.rows {
		a, r := p[i*k:(i+1)*k], own[i*k:(i+1)*k]
		for j := range y.rows {
			s := bilinear(a, y.e[j*k:(j+1)*k], r, q[j*k:(j+1)*k])
			if !(s <= g*math.MaxFloat32) {
				s = math.Inf(1) // a partial sum may leave the range of float32
			}
			e[i*y.rows+j] += s + float64(tiny*float64(k+1))
		}
	}
}

// bilinear is the sum of a*b + c*d.
func bilinear(a, b, c, d []float64) float64 {
	s := 0.0
	for k, x := range a {
		s += float64(x*b[k]) + float64(c[k]*d[k])
	}
	return s
}

func magnitudes(o operand) []float64 {
	m := make([]float64, len(o.x))
	for i, x := range o.x {
		m[i] = math.Abs(x)
	}
	return m
}

// dot is the sum of the products of two rows of n elements, in any order.
func dot(x, y operand) value {
	s, e, most := 0.0, 0.0, 0.0
	for i := range x.x {
		p := product(x.at(i), y.at(i))
		s += p.x
		e += p.e
		most += p.most()
	}
	return sum(s, e, most, len(x.x)+1)
}
