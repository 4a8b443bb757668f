package kernels

import "fmt"

// CheckMatMulNT: a is M x K, b is N x K, c is M x N, groups cuts [0, K). Rows
// may be strided.
func CheckMatMulNT(c, a, b Tensor, groups []int) {
	require(c.Rows == a.Rows && c.Cols == b.Rows && a.Cols == b.Cols, "MatMulNT", c, a, b)
	checkGroups("MatMulNT", groups, a.Cols)
}

// CheckMatMulNN: there is a term; every A is M x K, every B K x N with a K of
// its own, c is M x N; groups cut [0, K) and are equally many in all terms.
func CheckMatMulNN(c Tensor, terms []Term) {
	if len(terms) == 0 {
		panic("kernels: MatMulNN: no terms")
	}
	for _, t := range terms {
		require(t.A.Rows == c.Rows && t.B.Cols == c.Cols && t.A.Cols == t.B.Rows, "MatMulNN", c, t.A, t.B)
		checkGroups("MatMulNN", t.Groups, t.A.Cols)
		if GroupCount(t.Groups) != GroupCount(terms[0].Groups) {
			panic(fmt.Sprintf("kernels: MatMulNN: terms of %d and %d groups", GroupCount(terms[0].Groups), GroupCount(t.Groups)))
		}
	}
}

// GroupCount is the number of groups that bounds describe: nil is one.
func GroupCount(groups []int) int {
	if groups == nil {
		return 1
	}
	return len(groups) - 1
}

// CheckMatMulTN: a is K x M, b is K x N, c is M x N. Rows may be strided.
func CheckMatMulTN(c, a, b Tensor) {
	require(c.Rows == a.Cols && c.Cols == b.Cols && a.Rows == b.Rows, "MatMulTN", c, a, b)
}

// CheckRMSNorm: y and x are n x H, rstd has n elements, w has H.
func CheckRMSNorm(y, rstd, x, w Tensor) {
	dense(y.Rows == x.Rows && y.Cols == x.Cols && rstd.Len() == x.Rows && w.Len() == x.Cols, "RMSNorm", y, rstd, x, w)
}

// CheckRMSNormGrad: dx, dy, x and, unless absent, res are n x H, rstd has n
// elements, dw and w have H.
func CheckRMSNormGrad(dx, dw, dy, x, rstd, w, res Tensor) {
	n, h := x.Rows, x.Cols
	dense(dx.Rows == n && dx.Cols == h && dy.Rows == n && dy.Cols == h && rstd.Len() == n && dw.Len() == h && w.Len() == h,
		"RMSNormGrad", dx, dw, dy, x, rstd, w)
	if !res.Absent() {
		dense(res.Rows == n && res.Cols == h, "RMSNormGrad", res, dx)
	}
}

// CheckRope: cos and sin are T x Dim/2, a row of x holds whole heads of Dim
// elements, and there is a position for every row.
func CheckRope(x, cos, sin Tensor) {
	ok := cos.Rows == sin.Rows && cos.Cols == sin.Cols && (cos.Rows > 0 || x.Rows == 0)
	if cos.Cols == 0 {
		ok = ok && x.Cols == 0
	} else {
		ok = ok && x.Cols%(2*cos.Cols) == 0
	}
	dense(ok, "Rope", x, cos, sin)
}

// valid reports whether the numbers of h make sense together.
func (h Heads) valid() bool {
	return h.Seqs >= 0 && h.T >= 0 && h.Dim >= 0 && h.KVHeads >= 1 && h.Heads >= 1 &&
		h.Heads%h.KVHeads == 0 && h.KVGroups >= 1 && h.Heads/h.KVHeads%h.KVGroups == 0
}

// checkHeads is the part of the rule that both attention kernels share.
func checkHeads(kernel string, q, k, v, p Tensor, h Heads) {
	if !h.valid() {
		panic(fmt.Sprintf("kernels: %s: heads %+v", kernel, h))
	}
	n := h.Seqs * h.T
	dense(q.Rows == n && q.Cols == h.Heads*h.Dim && k.Rows == n && k.Cols == h.KVHeads*h.Dim &&
		v.Rows == n && v.Cols == k.Cols && p.Rows == n*h.Heads && p.Cols == h.T, kernel, q, k, v, p)
}

// CheckAttention: q and o are Seqs*T x Heads*Dim, k and v Seqs*T x KVHeads*Dim,
// p is Seqs*Heads*T x T.
func CheckAttention(o, p, q, k, v Tensor, h Heads) {
	checkHeads("Attention", q, k, v, p, h)
	dense(o.Rows == q.Rows && o.Cols == q.Cols, "Attention", o, q)
}

// CheckAttentionGrad: as CheckAttention, with each gradient of the shape of its
// value.
func CheckAttentionGrad(dq, dk, dv, do, p, q, k, v Tensor, h Heads) {
	checkHeads("AttentionGrad", q, k, v, p, h)
	dense(dq.Rows == q.Rows && dq.Cols == q.Cols && do.Rows == q.Rows && do.Cols == q.Cols &&
		dk.Rows == k.Rows && dk.Cols == k.Cols && dv.Rows == k.Rows && dv.Cols == k.Cols, "AttentionGrad", dq, dk, dv, do)
}

// CheckEmbedding: x and table have the same columns, tokens one index per row.
func CheckEmbedding(x, table Tensor, tokens []int32) {
	dense(x.Cols == table.Cols, "Embedding", x, table)
	checkCount("Embedding", len(tokens), x.Rows)
}

// CheckEmbeddingGrad: dtable and dx have the same columns, tokens one index per row.
func CheckEmbeddingGrad(dtable, dx Tensor, tokens []int32) {
	dense(dx.Cols == dtable.Cols, "EmbeddingGrad", dtable, dx)
	checkCount("EmbeddingGrad", len(tokens), dx.Rows)
}

// CheckLogitsMax: max and target have one element per row of z, targets one index.
func CheckLogitsMax(max, target, z Tensor, targets []int32) {
	dense(max.Len() == z.Rows && target.Len() == z.Rows, "LogitsMax", max, target, z)
	checkCount("LogitsMax", len(targets), z.Rows)
}

// CheckLogitsExpSum: sum and max have one element per row of z, groups cuts its
// columns.
func CheckLogitsExpSum(sum, z, max Tensor, groups []int) {
	dense(sum.Len() == z.Rows && max.Len() == z.Rows, "LogitsExpSum", sum, z, max)
	checkGroups("LogitsExpSum", groups, z.Cols)
}

// CheckCrossEntropy: nll, sum, max and target have one element per row of z,
// targets one index.
func CheckCrossEntropy(nll, z, sum, max, target Tensor, targets []int32) {
	n := z.Rows
	dense(nll.Len() == n && sum.Len() == n && max.Len() == n && target.Len() == n, "CrossEntropy", nll, z, sum, max, target)
	checkCount("CrossEntropy", len(targets), n)
}
