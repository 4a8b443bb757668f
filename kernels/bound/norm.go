package bound

import (
	"math"

	"github.com/lockstep-ml/lockstep/kernels"
)

// inverseRoot is 1/sqrt(mean(x*x) + eps) of one row. The mean is off by what
// its squares and their sum are; eps by its rounding. With d the bound of
// s = mean + eps and low = s - d > 0,
//
//	|1/sqrt(s') - 1/sqrt(s)| = |s'-s| / (sqrt(s s') (sqrt(s)+sqrt(s')))
//	                        <= d / (sqrt(s low) (sqrt(s)+sqrt(low))).
//
// Square root and division add a rounding each.
func inverseRoot(x operand, eps float64) value {
	s := add(dot(x, x).over(x.cols), scalar(eps))
	low := s.x - s.e
	if !(low > 0) {
		return value{1 / math.Sqrt(s.x), math.Inf(1)}
	}
	root, rootLow := math.Sqrt(s.x), math.Sqrt(low)
	r := value{1 / root, s.e / float64(float64(root*rootLow)*(root+rootLow))}
	return r.rounded().rounded()
}

// RMSNorm: y = (x*rstd)*w with the bound of rstd from inverseRoot.
func (b *Backend) RMSNorm(y, rstd, x, w kernels.Tensor, eps float64) {
	kernels.CheckRMSNorm(y, rstd, x, w)
	p, q := b.load(x), b.load(w)
	e, er := make([]float64, y.Len()), make([]float64, x.Rows)
	for i := range x.Rows {
		row := p.row(i)
		r := inverseRoot(row, eps)
		er[i] = r.e
		for j := range x.Cols {
			e[i*x.Cols+j] = mul(mul(row.at(j), r), q.at(j)).e
		}
	}
	b.both(func(k kernels.Kernels, at view) { k.RMSNorm(at(y), at(rstd), at(x), at(w), eps) })
	b.perToken(rstd, er)
	b.perToken(y, e)
}

// RMSNormGrad: each written operation by its own rule; the sums c (over a row)
// and dw (over the rows and the stored value) in any order.
func (b *Backend) RMSNormGrad(dx, dw, dy, x, rstd, w, res kernels.Tensor) {
	kernels.CheckRMSNormGrad(dx, dw, dy, x, rstd, w, res)
	in := normGrad{b.load(dy), b.load(x), b.load(rstd), b.load(w), operand{}}
	if !res.Absent() {
		in.res = b.load(res)
	}
	start, n := b.load(dw), x.Rows
	ew, most := start.e, make([]float64, x.Cols)
	for j := range most {
		most[j] = start.at(j).most()
	}
	e := make([]float64, 0, dx.Len())
	for i := range n {
		e = append(e, in.row(i, ew, most)...)
	}
	for j := range ew {
		ew[j] = sum(0, ew[j], most[j], n+1).e
	}
	b.both(func(k kernels.Kernels, at view) {
		k.RMSNormGrad(at(dx), at(dw), at(dy), at(x), at(rstd), at(w), at(res))
	})
	b.store(dw, ew)
	b.perToken(dx, e)
}

type normGrad struct{ dy, x, rstd, w, res operand }

// row gives the bounds of row i of dx and adds the row's products of dw to the
// errors ew and the magnitudes most.
func (in *normGrad) row(i int, ew, most []float64) []float64 {
	dy, x, r, h := in.dy.row(i), in.x.row(i), in.rstd.at(i), in.x.cols
	xh, d := operand{1, h, make([]float64, h), make([]float64, h)}, operand{1, h, make([]float64, h), make([]float64, h)}
	for j := range h {
		v := mul(x.at(j), r)
		xh.x[j], xh.e[j] = v.x, v.e
		p := product(dy.at(j), v)
		ew[j] += p.e
		most[j] += p.most()
		v = mul(dy.at(j), in.w.at(j))
		d.x[j], d.e[j] = v.x, v.e
	}
	c := dot(d, xh).over(h).neg()
	return each(h, func(j int) value {
		v := mul(fma(c, xh.at(j), d.at(j)), r)
		if len(in.res.x) > 0 {
			v = add(in.res.at(i*h+j), v)
		}
		return v
	})
}
