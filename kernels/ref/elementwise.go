package ref

import "github.com/lockstep-ml/lockstep/kernels"

// Fill implements kernels.Kernels.
func (b *Backend[T]) Fill(x kernels.Tensor, v float64) { fill(flat[T]("fill", x), T(v)) }

// Copy implements kernels.Kernels.
func (b *Backend[T]) Copy(dst, src kernels.Tensor) {
	x := flat[T]("copy", src)
	copy(sized[T]("copy", dst, len(x)), x)
}

// Add implements kernels.Kernels.
func (b *Backend[T]) Add(dst, x, y kernels.Tensor) {
	d := flat[T]("add", dst)
	sum(d, sized[T]("add", x, len(d)), sized[T]("add", y, len(d)))
}

func sum[T Float](d, x, y []T) {
	x, y = x[:len(d)], y[:len(d)]
	for i := range d {
		d[i] = x[i] + y[i]
	}
}

// Scale implements kernels.Kernels.
func (b *Backend[T]) Scale(dst, x kernels.Tensor, s float64) {
	d := flat[T]("scale", dst)
	f := T(s)
	for i, v := range sized[T]("scale", x, len(d)) {
		d[i] = v * f
	}
}

// AddBias implements kernels.Kernels.
func (b *Backend[T]) AddBias(y, bias kernels.Tensor) {
	m := view[T]("add bias", y)
	v := sized[T]("add bias", bias, m.cols)
	for i := range m.rows {
		addTo(m.row(i), v)
	}
}

// Residual implements kernels.Kernels.
func (b *Backend[T]) Residual(dst, x, y, bias kernels.Tensor) {
	const name = "residual"
	d := flat[T](name, dst)
	p, q := sized[T](name, x, len(d)), sized[T](name, y, len(d))
	if bias.Absent() {
		sum(d, p, q)
		return
	}
	n := dst.Cols
	v := sized[T](name, bias, n)
	for at := 0; at < len(d); at += n {
		for j, c := range v {
			d[at+j] = p[at+j] + (q[at+j] + c)
		}
	}
}

// ColumnSum implements kernels.Kernels.
func (b *Backend[T]) ColumnSum(dst, x kernels.Tensor) {
	m := view[T]("column sum", x)
	d := sized[T]("column sum", dst, m.cols)
	for i := range m.rows {
		addTo(d, m.row(i))
	}
}

// SwiGLU implements kernels.Kernels.
func (b *Backend[T]) SwiGLU(h, z, u kernels.Tensor) {
	const name = "swiglu"
	d := flat[T](name, h)
	p, q := sized[T](name, z, len(d)), sized[T](name, u, len(d))
	for i, v := range p {
		d[i] = T(v*sigmoid(v)) * q[i]
	}
}

// SwiGLUGrad implements kernels.Kernels.
func (b *Backend[T]) SwiGLUGrad(dz, du, dh, z, u kernels.Tensor) {
	const name = "swiglu grad"
	gz := flat[T](name, dz)
	n := len(gz)
	gu, gh := sized[T](name, du, n), sized[T](name, dh, n)
	p, q := sized[T](name, z, n), sized[T](name, u, n)
	for i := range n {
		v, w, g := p[i], q[i], gh[i] // outputs may lie on inputs
		sg := sigmoid(v)
		gu[i] = g * T(v*sg)
		gz[i] = T(g*w) * T(sg*fma(v, 1-sg, 1))
	}
}

// sigmoid is 1/(1+exp(-z)).
func sigmoid[T Float](z T) T { return 1 / (1 + exp(-z)) }
