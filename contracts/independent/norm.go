package independent

import "math"

// normed is what RMSNorm leaves: y = (x*rstd)*w, with the rows' rstd.
type normed struct {
	y    matrix
	rstd []value
}

// rmsNorm, per row: rstd = 1/sqrt(mean(x^2) + eps); y = (x*rstd)*w.
func rmsNorm(x matrix, w []float32, eps float64) normed {
	out := normed{newMatrix(x.rows, x.cols), make([]value, x.rows)}
	for i := range x.rows {
		r := rstd(x, i, eps)
		out.rstd[i] = r
		for j := range x.cols {
			at := i*x.cols + j
			out.y.set(at, x.at(at).mul(r).mul(exact(float64(w[j]))))
		}
	}
	return out
}

// rstd is that of row i. A sum of squares has no cancellation.
func rstd(x matrix, i int, eps float64) value {
	sum := value{}
	top := 0.0
	for j := range x.cols {
		a := x.at(i*x.cols + j)
		sum = sum.plus(a.times(a))
		top = max(top, math.Abs(a.v)+a.e)
	}
	n := lanes(x.cols)
	sum.e += gamma(n)*(sum.v+sum.e) + float64(n)*tiny
	if !(top*top*float64(x.cols) < math.MaxFloat32/2) {
		sum.e = math.Inf(1)
	}
	return exact(1).div(sum.div(exact(float64(x.cols))).add(host(eps)).sqrt())
}

// rmsNormGrad is the gradient of rmsNorm at x, given dy, added to res where it is
// not empty, and that of w: with xh = x*rstd and d = dy*w,
//
//	dx = res + (d - xh*mean(d*xh))*rstd;  dw = sum over rows of dy*xh.
//
// depth is how many roundings an addend of a sum over tokens passes.
func rmsNormGrad(dy, x matrix, rstd []value, w []float32, res matrix, depth int) (dx, dw matrix) {
	h := x.cols
	dx, dw = newMatrix(x.rows, h), newMatrix(1, h)
	xh, d := make([]value, h), make([]value, h)
	sizes := make([]float64, h)
	fold := lanes(h)
	for i := range x.rows {
		c, size := value{}, 0.0
		for j := range h {
			at := i*h + j
			g := dy.at(at)
			xh[j] = x.at(at).mul(rstd[i])
			d[j] = g.mul(exact(float64(w[j])))
			p := d[j].times(xh[j])
			c, size = c.plus(p), size+math.Abs(p.v)+p.e
			p = g.times(xh[j])
			dw.v[j] += p.v
			dw.e[j] += p.e
			sizes[j] += math.Abs(p.v) + p.e
		}
		c.e += gamma(fold)*size + float64(fold)*tiny
		c = c.div(exact(float64(h)))
		minus := value{-c.v, c.e}
		for j := range h {
			at := i*h + j
			v := minus.fma(xh[j], d[j]).mul(rstd[i])
			if res.v != nil {
				v = res.at(at).add(v)
			}
			dx.set(at, v)
		}
	}
	for j := range h {
		dw.e[j] += gamma(depth) * sizes[j]
	}
	return dx, dw.settle(depth)
}
