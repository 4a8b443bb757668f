package fault

import "github.com/lockstep-ml/lockstep/kernels"

// After is a backend that calls Do after every kernel that sets tensors, with the
// kernel's name, a method of kernels.Kernels, and its outputs in the order of its
// arguments. Do is given the backend beneath; nil does nothing.
type After struct {
	kernels.Backend
	Do func(be kernels.Backend, kernel string, outputs ...kernels.Tensor)
}

func (a *After) after(kernel string, outputs ...kernels.Tensor) {
	if a.Do != nil {
		a.Do(a.Backend, kernel, outputs...)
	}
}

// Fill is the kernel, and then Do.
func (a *After) Fill(x kernels.Tensor, v float64) {
	a.Backend.Fill(x, v)
	a.after("Fill", x)
}

// Copy is the kernel, and then Do.
func (a *After) Copy(dst, src kernels.Tensor) {
	a.Backend.Copy(dst, src)
	a.after("Copy", dst)
}

// Add is the kernel, and then Do.
func (a *After) Add(dst, x, y kernels.Tensor) {
	a.Backend.Add(dst, x, y)
	a.after("Add", dst)
}

// Scale is the kernel, and then Do.
func (a *After) Scale(dst, x kernels.Tensor, s float64) {
	a.Backend.Scale(dst, x, s)
	a.after("Scale", dst)
}

// AddBias is the kernel, and then Do.
func (a *After) AddBias(y, b kernels.Tensor) {
	a.Backend.AddBias(y, b)
	a.after("AddBias", y)
}

// Residual is the kernel, and then Do.
func (a *After) Residual(dst, x, y, b kernels.Tensor) {
	a.Backend.Residual(dst, x, y, b)
	a.after("Residual", dst)
}

// ColumnSum is the kernel, and then Do.
func (a *After) ColumnSum(dst, x kernels.Tensor) {
	a.Backend.ColumnSum(dst, x)
	a.after("ColumnSum", dst)
}

// MatMulNT is the kernel, and then Do.
func (a *After) MatMulNT(c, x, y kernels.Tensor, groups []int) {
	a.Backend.MatMulNT(c, x, y, groups)
	a.after("MatMulNT", c)
}

// MatMulNN is the kernel, and then Do.
func (a *After) MatMulNN(c kernels.Tensor, terms []kernels.Term) {
	a.Backend.MatMulNN(c, terms)
	a.after("MatMulNN", c)
}

// MatMulTN is the kernel, and then Do.
func (a *After) MatMulTN(c, x, y kernels.Tensor) {
	a.Backend.MatMulTN(c, x, y)
	a.after("MatMulTN", c)
}

// RMSNorm is the kernel, and then Do.
func (a *After) RMSNorm(y, rstd, x, w kernels.Tensor, eps float64) {
	a.Backend.RMSNorm(y, rstd, x, w, eps)
	a.after("RMSNorm", y, rstd)
}

// RMSNormGrad is the kernel, and then Do.
func (a *After) RMSNormGrad(dx, dw, dy, x, rstd, w, res kernels.Tensor) {
	a.Backend.RMSNormGrad(dx, dw, dy, x, rstd, w, res)
	a.after("RMSNormGrad", dx, dw)
}

// Rope is the kernel, and then Do.
func (a *After) Rope(x, cos, sin kernels.Tensor, inverse bool) {
	a.Backend.Rope(x, cos, sin, inverse)
	a.after("Rope", x)
}

// Attention is the kernel, and then Do.
func (a *After) Attention(o, p, q, k, v kernels.Tensor, h kernels.Heads) {
	a.Backend.Attention(o, p, q, k, v, h)
	a.after("Attention", o, p)
}

// AttentionGrad is the kernel, and then Do.
func (a *After) AttentionGrad(dq, dk, dv, do, p, q, k, v kernels.Tensor, h kernels.Heads) {
	a.Backend.AttentionGrad(dq, dk, dv, do, p, q, k, v, h)
	a.after("AttentionGrad", dq, dk, dv)
}

// SwiGLU is the kernel, and then Do.
func (a *After) SwiGLU(h, z, u kernels.Tensor) {
	a.Backend.SwiGLU(h, z, u)
	a.after("SwiGLU", h)
}

// SwiGLUGrad is the kernel, and then Do.
func (a *After) SwiGLUGrad(dz, du, dh, z, u kernels.Tensor) {
	a.Backend.SwiGLUGrad(dz, du, dh, z, u)
	a.after("SwiGLUGrad", dz, du)
}

// Embedding is the kernel, and then Do.
func (a *After) Embedding(x, table kernels.Tensor, tokens []int32, first int) {
	a.Backend.Embedding(x, table, tokens, first)
	a.after("Embedding", x)
}

// EmbeddingGrad is the kernel, and then Do.
func (a *After) EmbeddingGrad(dtable, dx kernels.Tensor, tokens []int32, first int) {
	a.Backend.EmbeddingGrad(dtable, dx, tokens, first)
	a.after("EmbeddingGrad", dtable)
}

// LogitsMax is the kernel, and then Do.
func (a *After) LogitsMax(most, target, z kernels.Tensor, targets []int32, first int) {
	a.Backend.LogitsMax(most, target, z, targets, first)
	a.after("LogitsMax", most, target)
}

// LogitsExpSum is the kernel, and then Do.
func (a *After) LogitsExpSum(sum, z, most kernels.Tensor, groups []int) {
	a.Backend.LogitsExpSum(sum, z, most, groups)
	a.after("LogitsExpSum", sum, z)
}

// CrossEntropy is the kernel, and then Do.
func (a *After) CrossEntropy(nll, z, sum, most, target kernels.Tensor, targets []int32, first int, invN float64) {
	a.Backend.CrossEntropy(nll, z, sum, most, target, targets, first, invN)
	a.after("CrossEntropy", nll, z)
}

// AdamW is the kernel, and then Do.
func (a *After) AdamW(w, m, v, g kernels.Tensor, p kernels.AdamWParams) {
	a.Backend.AdamW(w, m, v, g, p)
	a.after("AdamW", w, m, v)
}

// SGD is the kernel, and then Do.
func (a *After) SGD(w, b, g kernels.Tensor, p kernels.SGDParams) {
	a.Backend.SGD(w, b, g, p)
	a.after("SGD", w, b)
}

// Reduce is the kernel, and then Do.
func (a *After) Reduce(dst, src []kernels.Tensor, op kernels.Op) {
	a.Backend.Reduce(dst, src, op)
	a.after("Reduce", dst...)
}
