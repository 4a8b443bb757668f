package ref

import "github.com/lockstep-ml/lockstep/kernels"

// Rope implements kernels.Kernels.
func (b *Backend[T]) Rope(x, cos, sin kernels.Tensor, inverse bool) {
	const name = "rope"
	m, c := rows[T](name, x), rows[T](name, cos)
	s := matrix[T]{sized[T](name, sin, cos.Len()), c.rows, c.cols, c.cols}
	if m.rows == 0 || m.cols == 0 {
		return
	}
	if c.rows == 0 || c.cols == 0 || m.cols%(2*c.cols) != 0 {
		misuse(name, "%s with tables %s", x, cos)
	}
	for i := range m.rows {
		row := m.row(i)
		for at := 0; at < len(row); at += 2 * c.cols {
			rotate(row[at:at+2*c.cols], c.row(i%c.rows), s.row(i%c.rows), inverse)
		}
	}
}

// rotate turns one head by the half rotation.
func rotate[T Float](x, cos, sin []T, inverse bool) {
	lo, hi := x[:len(cos)], x[len(cos):]
	for j, c := range cos {
		s, a, b := sin[j], lo[j], hi[j]
		if inverse {
			s = -s
		}
		lo[j] = fma(-b, s, T(a*c))
		hi[j] = fma(a, s, T(b*c))
	}
}
