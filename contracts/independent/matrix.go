package independent

import (
	"math"
	"runtime"
)

// matrix is rows x cols values, row-major; nil errors are zero.
type matrix struct {
	rows, cols int
	v, e       []float64
	// term is the largest magnitude of the terms that the elements are differences of;
	// 0 where they are none.
	term float64
}

func newMatrix(rows, cols int) matrix {
	return matrix{rows: rows, cols: cols, v: make([]float64, rows*cols), e: make([]float64, rows*cols)}
}

// given is a matrix of exact elements.
func given(rows, cols int, x []float32) matrix {
	m := matrix{rows: rows, cols: cols, v: make([]float64, len(x))}
	for i, f := range x {
		m.v[i] = float64(f)
	}
	return m
}

func (m matrix) at(i int) value {
	if m.e == nil {
		return exact(m.v[i])
	}
	return value{m.v[i], m.e[i]}
}

func (m matrix) set(i int, x value) { m.v[i], m.e[i] = x.v, x.e }

// bounded is a copy.
func (m matrix) bounded() Bounded {
	b := Bounded{append([]float64(nil), m.v...), make([]float64, len(m.v))}
	copy(b.Bound, m.e)
	return b
}

// view is the matrix itself, where it has errors, or its values with bounds 0.
func (m matrix) view() Bounded {
	if m.e == nil {
		return m.bounded()
	}
	return Bounded{m.v, m.e}
}

// width is that of the bounds, in parts of the largest value or, where it is more, of the
// largest term of the differences that the elements are. Terms may cancel in part or
// altogether, as every attention does that looks at equal tokens: then no float32
// evaluation knows the difference better than to some roundings of a term, and what a
// bound can say is by which part of it no term is wrong.
func (m matrix) width() float64 { return width(m.view(), m.term) }

// magnitude is |x| + e of every element.
func (m matrix) magnitude() []float64 {
	out := make([]float64, len(m.v))
	for i, x := range m.v {
		out[i] = math.Abs(x)
	}
	for i, e := range m.e {
		out[i] += e
	}
	return out
}

// spread is e + g*(|x|+e) of every element: what the factor x contributes to the
// bound of a sum of products whose roundings amount to g of the magnitudes.
func (m matrix) spread(g float64) []float64 {
	out := m.magnitude()
	for i := range out {
		out[i] *= g
	}
	for i, e := range m.e {
		out[i] += e
	}
	return out
}

// transposed is the transpose of rows x cols elements.
func transposed(x []float64, rows, cols int) []float64 {
	out := make([]float64, len(x))
	for i := range rows {
		for j, v := range x[i*cols : (i+1)*cols] {
			out[j*rows+i] = v
		}
	}
	return out
}

// t is the transpose.
func (m matrix) t() matrix {
	out := matrix{rows: m.cols, cols: m.rows, v: transposed(m.v, m.rows, m.cols)}
	if m.e != nil {
		out.e = transposed(m.e, m.rows, m.cols)
	}
	return out
}

// product adds a*b to the sums in c, unrounded; n is how many roundings an
// addend passes. Bounds: with a' = a+da and b' = b+db, |a'b' - ab| is at most
// da*(|b|+db) + |a|*db, and roundings are gamma_n of |a'||b'|.
func (c matrix) product(a, b matrix, n int) {
	multiply(c.v, a.v, b.v, a.rows, a.cols, b.cols)
	c.bounds(a.spread(gamma(n)), b.magnitude(), a, b)
	if b.e != nil {
		c.bounds(matrix{v: a.v}.magnitude(), b.e, a, b)
	}
}

// largeProduct is from how many multiplications on bounds of products are taken
// in blocks.
const largeProduct = 1 << 22

// bounds adds the products of x, of a's size, and y, of b's, to the bounds of c;
// neither has negative elements. Large ones are bounded in blocks of eight
// addends by Cauchy and Schwarz, for an eighth of the work.
func (c matrix) bounds(x, y []float64, a, b matrix) {
	m, k, n := a.rows, a.cols, b.cols
	if m*k*n >= largeProduct {
		const block = 8
		x, y, k = rootSquares(x, m, k, block), transposed(rootSquares(transposed(y, k, n), n, k, block), n, (k+block-1)/block), (k+block-1)/block
	}
	multiply(c.e, x, y, m, k, n)
}

// rootSquares is the Euclidean norm of each block of each row.
func rootSquares(x []float64, rows, cols, block int) []float64 {
	out := make([]float64, 0, rows*(cols/block+1))
	for i := range rows {
		row := x[i*cols : (i+1)*cols]
		for len(row) > 0 {
			n := min(block, len(row))
			s := 0.0
			for _, v := range row[:n] {
				s += v * v
			}
			out, row = append(out, math.Sqrt(s)), row[n:]
		}
	}
	return out
}

// settle ends the sums of c, of n roundings each: what may have left the range of
// float32 on the way has no bound.
func (c matrix) settle(n int) matrix {
	g := gamma(n)
	for i := range c.e {
		c.e[i] += float64(n) * tiny
		if !(c.e[i] < math.MaxFloat32*g) || !(math.Abs(c.v[i])+c.e[i] <= math.MaxFloat32) {
			c.e[i] = math.Inf(1)
		}
	}
	return c
}

// multiply adds the m x k matrix a times the k x n matrix b to c; threads share
// pairs of rows, so that how many there are changes no bit.
func multiply(c, a, b []float64, m, k, n int) {
	count := min(runtime.GOMAXPROCS(0), m/2)
	if m*k*n < 1<<16 || count < 2 {
		multiplyRows(c, a, b, m, k, n)
		return
	}
	var wait threads
	for i := range count {
		lo, hi := m/2*i/count*2, m/2*(i+1)/count*2
		if i == count-1 {
			hi = m
		}
		wait.Go(func() { multiplyRows(c[lo*n:hi*n], a[lo*k:hi*k], b, hi-lo, k, n) })
	}
	wait.Wait()
}

// multiplyRows takes two rows of a and four of b at a time.
func multiplyRows(c, a, b []float64, m, k, n int) {
	i := 0
	for ; i+1 < m; i += 2 {
		c0, c1 := c[i*n:(i+1)*n], c[(i+1)*n:(i+2)*n]
		a0, a1 := a[i*k:(i+1)*k], a[(i+1)*k:(i+2)*k]
		j := 0
		for ; j+3 < k; j += 4 {
			four(c0, c1, (*[4]float64)(a0[j:]), (*[4]float64)(a1[j:]), b[j*n:(j+4)*n], n)
		}
		for ; j < k; j++ {
			axpy(c0, a0[j], b[j*n:(j+1)*n])
			axpy(c1, a1[j], b[j*n:(j+1)*n])
		}
	}
	for ; i < m; i++ {
		for j := range k {
			axpy(c[i*n:(i+1)*n], a[i*k+j], b[j*n:(j+1)*n])
		}
	}
}

func four(c0, c1 []float64, a0, a1 *[4]float64, b []float64, n int) {
	if *a0 == [4]float64{} && *a1 == [4]float64{} {
		return
	}
	b0, b1, b2, b3 := b[:n], b[n:2*n], b[2*n:3*n], b[3*n:4*n]
	b1, b2, b3, c1 = b1[:len(b0)], b2[:len(b0)], b3[:len(b0)], c1[:len(b0)]
	c0 = c0[:len(b0)]
	p0, p1, p2, p3 := a0[0], a0[1], a0[2], a0[3]
	q0, q1, q2, q3 := a1[0], a1[1], a1[2], a1[3]
	for j, x := range b0 {
		y, z, w := b1[j], b2[j], b3[j]
		c0[j] += (p0*x + p1*y) + (p2*z + p3*w)
		c1[j] += (q0*x + q1*y) + (q2*z + q3*w)
	}
}

func axpy(c []float64, a float64, b []float64) {
	if a == 0 {
		return
	}
	c = c[:len(b)]
	for j, x := range b {
		c[j] += a * x
	}
}

// parallel calls f(0) to f(n-1), on all processors.
func parallel(n int, f func(i int)) {
	count := min(runtime.GOMAXPROCS(0), n)
	var wait threads
	for t := range count {
		wait.Go(func() {
			for i := t; i < n; i += count {
				f(i)
			}
		})
	}
	wait.Wait()
}
