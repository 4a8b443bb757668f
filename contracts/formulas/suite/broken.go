package suite

import (
	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/kernels"
)

// broken is a backend some of whose kernels do something else; those of nil fields
// do what they must.
type broken struct {
	kernels.Backend
	eps          func(eps float64) float64 // of norms
	heads        func(h *kernels.Heads)    // of attention, in both passes
	share        func(targets []int32, share float64) float64
	terms        func(t []kernels.Term) []kernels.Term
	rope         func(be kernels.Backend, x, cos, sin kernels.Tensor, inverse bool)
	attended     func(be kernels.Backend, o, p, q, k, v kernels.Tensor, h kernels.Heads) // after attention
	swigluGrad   func(be kernels.Backend, dz, du, dh, z, u kernels.Tensor)
	columnSum    func(be kernels.Backend, dst, x kernels.Tensor)
	residual     func(be kernels.Backend, dst, x, y, bias kernels.Tensor)
	normGrad     func(be kernels.Backend, dx, dw, dy, x, rstd, w, res kernels.Tensor)
	embeddedGrad func(be kernels.Backend, dtable, dx kernels.Tensor, tokens []int32, first int)
	squares      func(be kernels.Backend, acc *kernels.SquareSum, x kernels.Tensor)
	adamW        func(be kernels.Backend, w, m, v, g kernels.Tensor, p kernels.AdamWParams)
}

// kernel breaks kernels of the only rank.
func kernel(b broken) fault.Fault {
	return fault.OnBackend(fault.Every, func(be kernels.Backend) kernels.Backend {
		one := b
		one.Backend = be
		return &one
	})
}

func (b *broken) RMSNorm(y, rstd, x, w kernels.Tensor, eps float64) {
	if b.eps != nil {
		eps = b.eps(eps)
	}
	b.Backend.RMSNorm(y, rstd, x, w, eps)
}

func (b *broken) RMSNormGrad(dx, dw, dy, x, rstd, w, res kernels.Tensor) {
	if b.normGrad != nil {
		b.normGrad(b.Backend, dx, dw, dy, x, rstd, w, res)
		return
	}
	b.Backend.RMSNormGrad(dx, dw, dy, x, rstd, w, res)
}

func (b *broken) Rope(x, cos, sin kernels.Tensor, inverse bool) {
	if b.rope != nil {
		b.rope(b.Backend, x, cos, sin, inverse)
		return
	}
	b.Backend.Rope(x, cos, sin, inverse)
}

func (b *broken) Attention(o, p, q, k, v kernels.Tensor, h kernels.Heads) {
	if b.heads != nil {
		b.heads(&h)
	}
	b.Backend.Attention(o, p, q, k, v, h)
	if b.attended != nil {
		b.attended(b.Backend, o, p, q, k, v, h)
	}
}

func (b *broken) AttentionGrad(dq, dk, dv, do, p, q, k, v kernels.Tensor, h kernels.Heads) {
	if b.heads != nil {
		b.heads(&h)
	}
	b.Backend.AttentionGrad(dq, dk, dv, do, p, q, k, v, h)
}

func (b *broken) SwiGLUGrad(dz, du, dh, z, u kernels.Tensor) {
	if b.swigluGrad != nil {
		b.swigluGrad(b.Backend, dz, du, dh, z, u)
		return
	}
	b.Backend.SwiGLUGrad(dz, du, dh, z, u)
}

func (b *broken) MatMulNN(c kernels.Tensor, terms []kernels.Term) {
	if b.terms != nil {
		terms = b.terms(terms)
	}
	b.Backend.MatMulNN(c, terms)
}

func (b *broken) ColumnSum(dst, x kernels.Tensor) {
	if b.columnSum != nil {
		b.columnSum(b.Backend, dst, x)
		return
	}
	b.Backend.ColumnSum(dst, x)
}

func (b *broken) Residual(dst, x, y, bias kernels.Tensor) {
	if b.residual != nil {
		b.residual(b.Backend, dst, x, y, bias)
		return
	}
	b.Backend.Residual(dst, x, y, bias)
}

func (b *broken) EmbeddingGrad(dtable, dx kernels.Tensor, tokens []int32, first int) {
	if b.embeddedGrad != nil {
		b.embeddedGrad(b.Backend, dtable, dx, tokens, first)
		return
	}
	b.Backend.EmbeddingGrad(dtable, dx, tokens, first)
}

func (b *broken) CrossEntropy(nll, z, sum, top, target kernels.Tensor, targets []int32, first int, invN float64) {
	if b.share != nil {
		invN = b.share(targets, invN)
	}
	b.Backend.CrossEntropy(nll, z, sum, top, target, targets, first, invN)
}

func (b *broken) SumSquares(acc *kernels.SquareSum, x kernels.Tensor) {
	if b.squares != nil {
		b.squares(b.Backend, acc, x)
		return
	}
	b.Backend.SumSquares(acc, x)
}

func (b *broken) AdamW(w, m, v, g kernels.Tensor, p kernels.AdamWParams) {
	if b.adamW != nil {
		b.adamW(b.Backend, w, m, v, g, p)
		return
	}
	b.Backend.AdamW(w, m, v, g, p)
}
