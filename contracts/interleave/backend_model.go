package interleave

import "github.com/lockstep-ml/lockstep/kernels"

func (b *backend) MatMulNT(c, x, y kernels.Tensor, groups []int) {
	b.does("MatMulNT", reads{x, y}, c)
	b.Backend.MatMulNT(c, x, y, groups)
}

func (b *backend) MatMulNN(c kernels.Tensor, terms []kernels.Term) {
	in := make(reads, 0, 2*len(terms))
	for _, t := range terms {
		in = append(in, t.A, t.B)
	}
	b.does("MatMulNN", in, c)
	b.Backend.MatMulNN(c, terms)
}

func (b *backend) MatMulTN(c, x, y kernels.Tensor) {
	b.does("MatMulTN", reads{c, x, y}, c)
	b.Backend.MatMulTN(c, x, y)
}

func (b *backend) RMSNorm(y, rstd, x, w kernels.Tensor, eps float64) {
	b.does("RMSNorm", reads{x, w}, y, rstd)
	b.Backend.RMSNorm(y, rstd, x, w, eps)
}

func (b *backend) RMSNormGrad(dx, dw, dy, x, rstd, w, res kernels.Tensor) {
	b.does("RMSNormGrad", reads{dw, dy, x, rstd, w, res}, dx, dw)
	b.Backend.RMSNormGrad(dx, dw, dy, x, rstd, w, res)
}

func (b *backend) Rope(x, cos, sin kernels.Tensor, inverse bool) {
	b.does("Rope", reads{x, cos, sin}, x)
	b.Backend.Rope(x, cos, sin, inverse)
}

func (b *backend) Attention(o, p, q, k, v kernels.Tensor, h kernels.Heads) {
	b.does("Attention", reads{q, k, v}, o, p)
	b.Backend.Attention(o, p, q, k, v, h)
}

func (b *backend) AttentionGrad(dq, dk, dv, do, p, q, k, v kernels.Tensor, h kernels.Heads) {
	b.does("AttentionGrad", reads{do, p, q, k, v}, dq, dk, dv, p)
	b.Backend.AttentionGrad(dq, dk, dv, do, p, q, k, v, h)
}

func (b *backend) SwiGLU(h, z, u kernels.Tensor) {
	b.does("SwiGLU", reads{z, u}, h)
	b.Backend.SwiGLU(h, z, u)
}

func (b *backend) SwiGLUGrad(dz, du, dh, z, u kernels.Tensor) {
	b.does("SwiGLUGrad", reads{dh, z, u}, dz, du)
	b.Backend.SwiGLUGrad(dz, du, dh, z, u)
}

func (b *backend) Embedding(x, table kernels.Tensor, tokens []int32, first int) {
	b.does("Embedding", reads{table}, x)
	b.Backend.Embedding(x, table, tokens, first)
}

func (b *backend) EmbeddingGrad(dtable, dx kernels.Tensor, tokens []int32, first int) {
	b.does("EmbeddingGrad", reads{dtable, dx}, dtable)
	b.Backend.EmbeddingGrad(dtable, dx, tokens, first)
}

func (b *backend) LogitsMax(max, target, z kernels.Tensor, targets []int32, first int) {
	b.does("LogitsMax", reads{z}, max, target)
	b.Backend.LogitsMax(max, target, z, targets, first)
}

func (b *backend) LogitsExpSum(sum, z, max kernels.Tensor, groups []int) {
	b.does("LogitsExpSum", reads{z, max}, sum, z)
	b.Backend.LogitsExpSum(sum, z, max, groups)
}

func (b *backend) CrossEntropy(nll, z, sum, max, target kernels.Tensor, targets []int32, first int, invN float64) {
	b.does("CrossEntropy", reads{z, sum, max, target}, nll, z)
	b.Backend.CrossEntropy(nll, z, sum, max, target, targets, first, invN)
}
