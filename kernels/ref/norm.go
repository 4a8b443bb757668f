package ref

import "github.com/lockstep-ml/lockstep/kernels"

// RMSNorm implements kernels.Kernels.
func (b *Backend[T]) RMSNorm(y, rstd, x, w kernels.Tensor, eps float64) {
	const name = "rmsnorm"
	in := rows[T](name, x)
	out, scale := sized[T](name, y, x.Len()), sized[T](name, w, in.cols)
	rs := sized[T](name, rstd, in.rows)
	h, e := T(in.cols), T(eps)
	for i := range rs {
		row := in.row(i)
		r := 1 / root(lanesDot(row, row)/h+e)
		rs[i] = r
		dst := out[i*in.cols : (i+1)*in.cols]
		for j, v := range row {
			dst[j] = T(v*r) * scale[j]
		}
	}
}

// RMSNormGrad implements kernels.Kernels.
func (b *Backend[T]) RMSNormGrad(dx, dw, dy, x, rstd, w, res kernels.Tensor) {
	const name = "rmsnorm grad"
	in := rows[T](name, x)
	n, h := x.Len(), in.cols
	gx, gy, more := sized[T](name, dx, n), sized[T](name, dy, n), sizedOrAbsent[T](name, res, n)
	gw, scale := sized[T](name, dw, h), sized[T](name, w, h)
	s := b.scratch(2 * h)
	defer b.release(s)
	xh, d := (*s)[:h], (*s)[h:]
	for i, r := range sized[T](name, rstd, in.rows) {
		lo, hi := i*h, (i+1)*h
		row, grad := in.row(i), gy[lo:hi]
		for j, v := range row {
			xh[j] = v * r
			d[j] = grad[j] * scale[j]
		}
		products(gw, grad, xh)
		c := lanesDot(d, xh) / T(h)
		dst := gx[lo:hi]
		for j := range d {
			d[j] = T(fma(-c, xh[j], d[j]) * r)
		}
		if more == nil {
			copy(dst, d)
		} else {
			sum(dst, more[lo:hi], d)
		}
	}
}

// rows is the view of a contiguous tensor.
func rows[T Float](kernel string, t kernels.Tensor) matrix[T] {
	flat[T](kernel, t)
	return view[T](kernel, t)
}
