package null

import "github.com/lockstep-ml/lockstep/kernels"

// MatMulNT counts 2*M*N*K operations.
func (b *Backend) MatMulNT(c, x, y kernels.Tensor, groups []int) {
	kernels.CheckMatMulNT(c, x, y, groups)
	b.add("MatMulNT", 2*c.Len()*x.Cols, x.Len()+y.Len(), c.Len())
}

// MatMulNN counts 2*M*N*K operations over the K of all terms.
func (b *Backend) MatMulNN(c kernels.Tensor, terms []kernels.Term) {
	kernels.CheckMatMulNN(c, terms)
	k, read := 0, 0
	for _, t := range terms {
		k += t.A.Cols
		read += t.A.Len() + t.B.Len()
	}
	b.add("MatMulNN", 2*c.Len()*k, read, c.Len())
}

// MatMulTN counts 2*M*N*K operations; c is read, too.
func (b *Backend) MatMulTN(c, x, y kernels.Tensor) {
	kernels.CheckMatMulTN(c, x, y)
	b.add("MatMulTN", 2*c.Len()*x.Rows, c.Len()+x.Len()+y.Len(), c.Len())
}

// RMSNorm counts 4 operations per element (the fma of the squares, two
// products) and 4 per row (/H, +eps, sqrt, 1/).
func (b *Backend) RMSNorm(y, rstd, x, w kernels.Tensor, _ float64) {
	kernels.CheckRMSNorm(y, rstd, x, w)
	n := x.Len()
	b.add("RMSNorm", 4*n+4*x.Rows, n+w.Len(), n+x.Rows)
}

// RMSNormGrad counts 9 operations per element (xh, d, three fma, *rstd), one
// more with a residual, and one per row (/H).
func (b *Backend) RMSNormGrad(dx, dw, dy, x, rstd, w, res kernels.Tensor) {
	kernels.CheckRMSNormGrad(dx, dw, dy, x, rstd, w, res)
	n, h := x.Len(), x.Cols
	flops, read := 9*n+x.Rows, 2*n+x.Rows+2*h
	if !res.Absent() {
		flops, read = flops+n, read+n
	}
	b.add("RMSNormGrad", flops, read, n+h)
}

// Rope counts 6 operations per pair of elements: two products, two fma.
func (b *Backend) Rope(x, cos, sin kernels.Tensor, _ bool) {
	kernels.CheckRope(x, cos, sin)
	n, table := x.Len(), min(x.Rows, cos.Rows)*cos.Cols
	b.add("Rope", 3*n, n+2*table, n)
}

// pairs is the number of (head, query, key) triples under the causal rule.
func pairs(h kernels.Heads) int { return h.Seqs * h.Heads * (h.T * (h.T + 1) / 2) }

// Attention counts, per pair, 4*Dim for the two chains and 5: scale, -m, exp,
// the sum, the division.
func (b *Backend) Attention(o, p, q, k, v kernels.Tensor, h kernels.Heads) {
	kernels.CheckAttention(o, p, q, k, v, h)
	n := pairs(h)
	b.add("Attention", n*(4*h.Dim+5), q.Len()+k.Len()+v.Len(), o.Len()+n)
}

// AttentionGrad counts, per pair, 8*Dim for the four chains and 5: the fma of
// p*dp, and the difference and two products of ds.
func (b *Backend) AttentionGrad(dq, dk, dv, do, p, q, k, v kernels.Tensor, h kernels.Heads) {
	kernels.CheckAttentionGrad(dq, dk, dv, do, p, q, k, v, h)
	n := pairs(h)
	b.add("AttentionGrad", n*(8*h.Dim+5), do.Len()+n+q.Len()+k.Len()+v.Len(), dq.Len()+dk.Len()+dv.Len())
}

// hits is the number of indices that lie in a table of the given rows.
func hits(tokens []int32, first, rows int) int {
	n := 0
	for _, t := range tokens {
		if i := int64(t) - int64(first); i >= 0 && i < int64(rows) {
			n++
		}
	}
	return n
}

// Embedding counts one addition (of +0) per element found in the table.
func (b *Backend) Embedding(x, table kernels.Tensor, tokens []int32, first int) {
	kernels.CheckEmbedding(x, table, tokens)
	n := hits(tokens, first, table.Rows) * table.Cols
	b.add("Embedding", n, n, x.Len())
}

// EmbeddingGrad counts one addition per element whose row is in the table; a
// row met again counts again.
func (b *Backend) EmbeddingGrad(dtable, dx kernels.Tensor, tokens []int32, first int) {
	kernels.CheckEmbeddingGrad(dtable, dx, tokens)
	n := hits(tokens, first, dtable.Rows) * dtable.Cols
	b.add("EmbeddingGrad", n, 2*n, n)
}

// LogitsMax counts one addition (of +0) per local target.
func (b *Backend) LogitsMax(max, target, z kernels.Tensor, targets []int32, first int) {
	kernels.CheckLogitsMax(max, target, z, targets)
	b.add("LogitsMax", hits(targets, first, z.Cols), z.Len(), 2*z.Rows)
}

// LogitsExpSum counts 3 operations per logit: -max, exp, the sum.
func (b *Backend) LogitsExpSum(sum, z, max kernels.Tensor, groups []int) {
	kernels.CheckLogitsExpSum(sum, z, max, groups)
	b.add("LogitsExpSum", 3*z.Len(), z.Len()+z.Rows, z.Len()+z.Rows)
}

// CrossEntropy counts, per row with a target, 3 operations per logit and 3
// more: log, + and -. Ignored rows are only written.
func (b *Backend) CrossEntropy(nll, z, sum, max, target kernels.Tensor, targets []int32, _ int, _ float64) {
	kernels.CheckCrossEntropy(nll, z, sum, max, target, targets)
	valid := 0
	for _, y := range targets {
		if y >= 0 {
			valid++
		}
	}
	b.add("CrossEntropy", valid*(3*z.Cols+3), valid*(z.Cols+3), z.Len()+z.Rows)
}
