package null

import "github.com/lockstep-ml/lockstep/kernels"

// Fill counts n elements written.
func (b *Backend) Fill(x kernels.Tensor, _ float64) {
	kernels.CheckFill(x)
	b.add("Fill", 0, 0, x.Len())
}

// Copy counts n elements read and written.
func (b *Backend) Copy(dst, src kernels.Tensor) {
	kernels.CheckCopy(dst, src)
	b.add("Copy", 0, src.Len(), src.Len())
}

// Add counts n additions.
func (b *Backend) Add(dst, x, y kernels.Tensor) {
	kernels.CheckAdd(dst, x, y)
	n := dst.Len()
	b.add("Add", n, 2*n, n)
}

// Scale counts n multiplications.
func (b *Backend) Scale(dst, x kernels.Tensor, _ float64) {
	kernels.CheckScale(dst, x)
	n := dst.Len()
	b.add("Scale", n, n, n)
}

// AddBias counts one addition per element of y.
func (b *Backend) AddBias(y, bias kernels.Tensor) {
	kernels.CheckAddBias(y, bias)
	n := y.Len()
	b.add("AddBias", n, n+y.Cols, n)
}

// Residual counts one addition per element, two with a bias.
func (b *Backend) Residual(dst, x, y, bias kernels.Tensor) {
	kernels.CheckResidual(dst, x, y, bias)
	n := dst.Len()
	if bias.Absent() {
		b.add("Residual", n, 2*n, n)
		return
	}
	b.add("Residual", 2*n, 2*n+bias.Len(), n)
}

// ColumnSum counts one addition per element of x.
func (b *Backend) ColumnSum(dst, x kernels.Tensor) {
	kernels.CheckColumnSum(dst, x)
	b.add("ColumnSum", x.Len(), x.Len()+x.Cols, x.Cols)
}

// SwiGLU counts 5 operations per element: exp, 1+, 1/, z*sg, *u.
func (b *Backend) SwiGLU(h, z, u kernels.Tensor) {
	kernels.CheckSwiGLU(h, z, u)
	n := h.Len()
	b.add("SwiGLU", 5*n, 2*n, n)
}

// SwiGLUGrad counts 11 operations per element: 3 for sg, 2 for du, and for dz
// dh*u, 1-sg, the fma and two products.
func (b *Backend) SwiGLUGrad(dz, du, dh, z, u kernels.Tensor) {
	kernels.CheckSwiGLUGrad(dz, du, dh, z, u)
	n := dz.Len()
	b.add("SwiGLUGrad", 11*n, 3*n, 2*n)
}

// AdamW counts 17 operations per element: four fma, and g*coef, b1*m, g'*g',
// b2*v, two corrections, sqrt, +eps and the division.
func (b *Backend) AdamW(w, m, v, g kernels.Tensor, _ kernels.AdamWParams) {
	kernels.CheckAdamW(w, m, v, g)
	n := w.Len()
	b.add("AdamW", 17*n, 4*n, 3*n)
}

// SGD counts 7 operations per element: g*coef and three fma.
func (b *Backend) SGD(w, m, g kernels.Tensor, _ kernels.SGDParams) {
	kernels.CheckSGD(w, m, g)
	n := w.Len()
	b.add("SGD", 7*n, 3*n, 2*n)
}

// Reduce counts, for a sum, one addition per element and present source but
// the first.
func (b *Backend) Reduce(dst, src []kernels.Tensor, op kernels.Op) {
	kernels.CheckReduce(dst, src, op)
	present, n := 0, 0
	for _, t := range src {
		if !t.Absent() {
			present++
			n = t.Len()
		}
	}
	if len(dst) > 0 {
		n = dst[0].Len()
	}
	flops := 0
	if op == kernels.Sum && present > 1 {
		flops = (present - 1) * n
	}
	b.add("Reduce", flops, present*n, len(dst)*n)
}

// SumSquares counts a multiplication and an addition per element; acc stays as
// it is.
func (b *Backend) SumSquares(_ *kernels.SquareSum, x kernels.Tensor) {
	kernels.CheckSumSquares(x)
	b.add("SumSquares", 2*x.Len(), x.Len(), 0)
}

// Hash counts the elements read; d stays as it is.
func (b *Backend) Hash(_ *kernels.Digest, x kernels.Tensor, _ kernels.Place) {
	kernels.CheckHash(x)
	b.add("Hash", 0, x.Len(), 0)
}

// HashChanged counts the elements read; d stays as it is, and nothing changed.
func (b *Backend) HashChanged(_ *kernels.Digest, x, old kernels.Tensor, _ kernels.Place) int {
	kernels.CheckHashChanged(x, old)
	b.add("HashChanged", 0, 2*x.Len(), 0)
	return 0
}
