package order

import (
	"math"

	"github.com/lockstep-ml/lockstep/kernels"
)

// sums is a backend that takes the sums over tokens itself: what a kernel adds
// to the gradient buffer goes, term by term, to value, and its magnitude to
// magnitude. The gradient buffer of the backend is never read.
type sums struct {
	kernels.Backend
	grads, loss      kernels.Buffer
	value, magnitude []float64 // by place in grads
	total            float64   // of the loss
	err              error     // of reading, the first
}

// read copies a tensor, row by row where it is strided.
func (s *sums) read(t kernels.Tensor) []float32 {
	out := make([]float32, t.Len())
	rows, cols := t.Rows, t.Cols
	if t.Contiguous() {
		rows, cols = 1, t.Len()
	}
	for i := range rows {
		row := kernels.Tensor{Buf: t.Buf, Off: t.Off + i*t.Stride, Rows: 1, Cols: cols, Stride: cols}
		if err := s.Backend.Read(out[i*cols:(i+1)*cols], row); err != nil && s.err == nil {
			s.err = err
		}
	}
	return out
}

// add adds the exact term x at place i.
func (s *sums) add(i int, x float64) {
	s.value[i] += x
	s.magnitude[i] += math.Abs(x)
}

// MatMulTN adds the products a[k][m]*b[k][n].
func (s *sums) MatMulTN(c, a, b kernels.Tensor) {
	if c.Buf != s.grads {
		s.Backend.MatMulTN(c, a, b)
		return
	}
	x, y := s.read(a), s.read(b)
	for k := range a.Rows {
		for m, u := range x[k*a.Cols : (k+1)*a.Cols] {
			at := c.Off + m*c.Stride
			for n, v := range y[k*b.Cols : (k+1)*b.Cols] {
				s.add(at+n, float64(float64(u)*float64(v)))
			}
		}
	}
}

// ColumnSum adds the rows of x.
func (s *sums) ColumnSum(dst, x kernels.Tensor) {
	switch dst.Buf {
	case s.loss:
		for _, v := range s.read(x) {
			s.total += float64(v)
		}
	case s.grads:
		for i, v := range s.read(x) {
			s.add(dst.Off+i%x.Cols, float64(v))
		}
	default:
		s.Backend.ColumnSum(dst, x)
	}
}

// RMSNormGrad adds dy*(x*rstd) to dw; what it computes per token it leaves to
// the backend.
func (s *sums) RMSNormGrad(dx, dw, dy, x, rstd, w, res kernels.Tensor) {
	if dw.Buf == s.grads {
		d, v, r := s.read(dy), s.read(x), s.read(rstd)
		for i := range d {
			xh := float32(v[i] * r[i/x.Cols])
			s.add(dw.Off+i%x.Cols, float64(float64(d[i])*float64(xh)))
		}
	}
	s.Backend.RMSNormGrad(dx, dw, dy, x, rstd, w, res)
}

// EmbeddingGrad adds the rows of dx to those of their tokens.
func (s *sums) EmbeddingGrad(dtable, dx kernels.Tensor, tokens []int32, first int) {
	if dtable.Buf != s.grads {
		s.Backend.EmbeddingGrad(dtable, dx, tokens, first)
		return
	}
	for i, v := range s.read(dx) {
		row := int(tokens[i/dx.Cols]) - first
		if row >= 0 && row < dtable.Rows {
			s.add(dtable.Off+row*dtable.Cols+i%dx.Cols, float64(v))
		}
	}
}
