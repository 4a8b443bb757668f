package bound

import "github.com/lockstep-ml/lockstep/kernels"

// Fill: every element is v rounded once.
func (b *Backend) Fill(x kernels.Tensor, v float64) {
	kernels.CheckFill(x)
	e := make([]float64, x.Len())
	for i := range e {
		e[i] = scalar(v).e
	}
	b.both(func(k kernels.Kernels, at view) { k.Fill(at(x), v) })
	b.store(x, e)
}

// Copy keeps bounds as they are.
func (b *Backend) Copy(dst, src kernels.Tensor) {
	kernels.CheckCopy(dst, src)
	e := b.Bounds(src)
	b.both(func(k kernels.Kernels, at view) { k.Copy(at(dst), at(src)) })
	b.setBounds(dst, e)
}

// each makes the bounds of n results from their values.
func each(n int, f func(i int) value) []float64 {
	e := make([]float64, n)
	for i := range e {
		e[i] = f(i).e
	}
	return e
}

// Add: the errors add, and the sum rounds.
func (b *Backend) Add(dst, x, y kernels.Tensor) {
	kernels.CheckAdd(dst, x, y)
	p, q := b.load(x), b.load(y)
	e := each(dst.Len(), func(i int) value { return add(p.at(i), q.at(i)) })
	b.both(func(k kernels.Kernels, at view) { k.Add(at(dst), at(x), at(y)) })
	b.store(dst, e)
}

// Scale: s is rounded, then the product.
func (b *Backend) Scale(dst, x kernels.Tensor, s float64) {
	kernels.CheckScale(dst, x)
	p := b.load(x)
	e := each(dst.Len(), func(i int) value { return mul(p.at(i), scalar(s)) })
	b.both(func(k kernels.Kernels, at view) { k.Scale(at(dst), at(x), s) })
	b.store(dst, e)
}

// AddBias: as Add.
func (b *Backend) AddBias(y, bias kernels.Tensor) {
	kernels.CheckAddBias(y, bias)
	p, q := b.load(y), b.load(bias)
	e := each(y.Len(), func(i int) value { return add(p.at(i), q.at(i%y.Cols)) })
	b.both(func(k kernels.Kernels, at view) { k.AddBias(at(y), at(bias)) })
	b.perToken(y, e)
}

// Residual: a sum of three in any order: two roundings of the magnitudes.
func (b *Backend) Residual(dst, x, y, bias kernels.Tensor) {
	kernels.CheckResidual(dst, x, y, bias)
	p, q := b.load(x), b.load(y)
	e := each(dst.Len(), func(i int) value { return add(p.at(i), q.at(i)) })
	if !bias.Absent() {
		r := b.load(bias)
		e = each(dst.Len(), func(i int) value {
			s, t, v := p.at(i), q.at(i), r.at(i%dst.Cols)
			return sum(0, s.e+t.e+v.e, s.most()+t.most()+v.most(), 2)
		})
	}
	b.both(func(k kernels.Kernels, at view) { k.Residual(at(dst), at(x), at(y), at(bias)) })
	b.perToken(dst, e)
}

// ColumnSum: a sum of the stored value and one per row, in any order.
func (b *Backend) ColumnSum(dst, x kernels.Tensor) {
	kernels.CheckColumnSum(dst, x)
	p, q := b.load(dst), b.load(x)
	e := each(dst.Len(), func(j int) value {
		err, most := p.e[j], p.at(j).most()
		for i := range x.Rows {
			v := q.at(i*x.Cols + j)
			err += v.e
			most += v.most()
		}
		return sum(0, err, most, x.Rows)
	})
	b.both(func(k kernels.Kernels, at view) { k.ColumnSum(at(dst), at(x)) })
	b.store(dst, e)
}

// Rope: two products and a sum per element.
func (b *Backend) Rope(x, cos, sin kernels.Tensor, inverse bool) {
	kernels.CheckRope(x, cos, sin)
	p, c, s := b.load(x), b.load(cos), b.load(sin)
	half := cos.Cols
	e := make([]float64, x.Len())
	for i := range x.Rows {
		table := 0
		if half > 0 {
			table = i % cos.Rows * half
		}
		for j := 0; j < x.Cols; j += 2 * half {
			for k := range half {
				lo := i*x.Cols + j + k
				u, v, cs, sn := p.at(lo), p.at(lo+half), c.at(table+k), s.at(table+k)
				if inverse {
					sn = sn.neg()
				}
				e[lo] = fma(v.neg(), sn, mul(u, cs)).e
				e[lo+half] = fma(u, sn, mul(v, cs)).e
			}
		}
	}
	b.both(func(k kernels.Kernels, at view) { k.Rope(at(x), at(cos), at(sin), inverse) })
	b.perToken(x, e)
}
