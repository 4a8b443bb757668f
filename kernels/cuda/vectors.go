//go:build cuda

package cuda

import (
	"math"

	"github.com/lockstep-ml/lockstep/kernels"
)

// elementwise launches a kernel over the n elements of tensors, with scalars at the end.
func (b *Backend) elementwise(name string, n int, scalars []float64, ts ...kernels.Tensor) {
	if n == 0 {
		return
	}
	b.enter()
	defer b.mu.Unlock()
	b.begin(name).tensors(ts...).words(uint64(n)).floats(scalars...).elements(n)
}

// Fill implements kernels.Kernels.
func (b *Backend) Fill(x kernels.Tensor, v float64) {
	kernels.CheckFill(x)
	if x.Len() == 0 {
		return
	}
	b.enter()
	defer b.mu.Unlock()
	b.begin("fill").tensors(x).floats(v).words(uint64(x.Len())).elements(x.Len())
}

// Copy implements kernels.Kernels.
func (b *Backend) Copy(dst, src kernels.Tensor) {
	kernels.CheckCopy(dst, src)
	if dst.Len() > 0 && own(dst).mem.Device() != own(src).mem.Device() {
		b.enter()
		defer b.mu.Unlock()
		b.note(b.stream.Copy(own(dst).mem, elementBytes*dst.Off, own(src).mem, elementBytes*src.Off, elementBytes*src.Len()))
		return
	}
	b.elementwise("copy", dst.Len(), nil, dst, src)
}

// Add implements kernels.Kernels.
func (b *Backend) Add(dst, x, y kernels.Tensor) {
	kernels.CheckAdd(dst, x, y)
	b.elementwise("add_vectors", dst.Len(), nil, dst, x, y)
}

// Scale implements kernels.Kernels.
func (b *Backend) Scale(dst, x kernels.Tensor, s float64) {
	kernels.CheckScale(dst, x)
	if x.Len() == 0 {
		return
	}
	b.enter()
	defer b.mu.Unlock()
	b.begin("scale").tensors(dst, x).floats(s).words(uint64(x.Len())).elements(x.Len())
}

// SwiGLU implements kernels.Kernels.
func (b *Backend) SwiGLU(h, z, u kernels.Tensor) {
	kernels.CheckSwiGLU(h, z, u)
	b.elementwise("swiglu", h.Len(), nil, h, z, u)
}

// SwiGLUGrad implements kernels.Kernels.
func (b *Backend) SwiGLUGrad(dz, du, dh, z, u kernels.Tensor) {
	kernels.CheckSwiGLUGrad(dz, du, dh, z, u)
	b.elementwise("swiglu_grad", dz.Len(), nil, dz, du, dh, z, u)
}

// AdamW implements kernels.Kernels.
func (b *Backend) AdamW(w, m, v, g kernels.Tensor, p kernels.AdamWParams) {
	kernels.CheckAdamW(w, m, v, g)
	b.elementwise("adamw", w.Len(), []float64{p.Coef, p.Beta1, 1 - p.Beta1, p.Beta2, 1 - p.Beta2, p.C1, p.C2, p.Eps, p.Decay, -p.LR}, w, m, v, g)
}

// SGD implements kernels.Kernels.
func (b *Backend) SGD(w, buf, g kernels.Tensor, p kernels.SGDParams) {
	kernels.CheckSGD(w, buf, g)
	b.elementwise("sgd", w.Len(), []float64{p.Coef, p.Momentum, p.Decay, -p.LR}, w, buf, g)
}

// AddBias implements kernels.Kernels.
func (b *Backend) AddBias(y, bias kernels.Tensor) {
	kernels.CheckAddBias(y, bias)
	if y.Len() == 0 {
		return
	}
	b.enter()
	defer b.mu.Unlock()
	b.begin("add_bias").rows(y).tensors(bias).ints(y.Rows, y.Cols).grid(y.Rows, y.Cols)
}

// Residual implements kernels.Kernels.
func (b *Backend) Residual(dst, x, y, bias kernels.Tensor) {
	kernels.CheckResidual(dst, x, y, bias)
	if bias.Absent() {
		b.elementwise("add_vectors", dst.Len(), nil, dst, x, y)
		return
	}
	if dst.Len() == 0 {
		return
	}
	b.enter()
	defer b.mu.Unlock()
	b.begin("residual").tensors(dst, x, y, bias).ints(dst.Rows, dst.Cols).grid(dst.Rows, dst.Cols)
}

// ColumnSum implements kernels.Kernels.
func (b *Backend) ColumnSum(dst, x kernels.Tensor) {
	kernels.CheckColumnSum(dst, x)
	if x.Len() == 0 {
		return
	}
	b.enter()
	defer b.mu.Unlock()
	b.begin("column_sum").tensors(dst).rows(x).ints(x.Rows, x.Cols).strips(x.Cols)
}

// Rope implements kernels.Kernels.
func (b *Backend) Rope(x, cos, sin kernels.Tensor, inverse bool) {
	kernels.CheckRope(x, cos, sin)
	if x.Len() == 0 {
		return
	}
	sign := 0
	if inverse {
		sign = math.MinInt32 // the sign bit
	}
	b.enter()
	defer b.mu.Unlock()
	b.begin("rope").tensors(x, cos, sin).ints(x.Rows, x.Cols/2, cos.Cols, cos.Rows, sign).grid(x.Rows, x.Cols/2)
}

// RMSNorm implements kernels.Kernels.
func (b *Backend) RMSNorm(y, rstd, x, w kernels.Tensor, eps float64) {
	kernels.CheckRMSNorm(y, rstd, x, w)
	if x.Rows == 0 {
		return
	}
	b.enter()
	defer b.mu.Unlock()
	b.begin("rmsnorm").tensors(y, rstd, x, w).ints(x.Rows, x.Cols).floats(float64(x.Cols), eps).warps(x.Rows)
}

// RMSNormGrad implements kernels.Kernels: dw first, as dx may lie on dy.
func (b *Backend) RMSNormGrad(dx, dw, dy, x, rstd, w, res kernels.Tensor) {
	kernels.CheckRMSNormGrad(dx, dw, dy, x, rstd, w, res)
	if x.Len() == 0 {
		return
	}
	b.enter()
	defer b.mu.Unlock()
	b.begin("rmsnorm_grad_dw").tensors(dw, dy, x, rstd).ints(x.Rows, x.Cols).strips(x.Cols)
	b.begin("rmsnorm_grad_dx").tensors(dx, dy, x, rstd, w, res).ints(x.Rows, x.Cols).floats(float64(x.Cols)).warps(x.Rows)
}
