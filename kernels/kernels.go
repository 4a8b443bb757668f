package kernels

// Op is the operation of a reduction.
type Op uint8

// The reductions of float elements.
const (
	Sum Op = iota // canonical tree
	Max           // starts at -Inf; if x > m {m = x}
)

// String gives NCCL's name of the operation.
func (o Op) String() string {
	switch o {
	case Sum:
		return "sum"
	case Max:
		return "max"
	}
	return "unknown"
}

// Term is one operand pair of a grouped MatMulNN: A is M x K, B is K x N, and
// Groups holds G+1 ascending bounds that cut [0, K]; group g takes
// k in [Groups[g], Groups[g+1]), which may be empty. Nil Groups is one group.
type Term struct {
	A, B   Tensor
	Groups []int
}

// Heads describes an attention call. Rows of q, k, v, o are tokens: Seqs
// sequences of T tokens each, so Rows = Seqs*T. A row of q and o holds Heads
// heads of Dim elements, a row of k and v KVHeads heads. Heads is a multiple of
// KVHeads; query head h attends with key head h / (Heads/KVHeads). KVGroups is
// the number of tensor groups that share one key head here (1 or more; divides
// Heads/KVHeads): the gradients of k and v are the tree over them.
type Heads struct {
	Seqs, T, Heads, KVHeads, Dim, KVGroups int
	Scale                                  float64
}

// AdamWParams are the scalars of one AdamW update; C1 = 1-Beta1^t and
// C2 = 1-Beta2^t come from the step number t alone.
type AdamWParams struct {
	LR, Beta1, Beta2, Eps, Decay, C1, C2, Coef float64
}

// SGDParams are the scalars of one SGD update with momentum.
type SGDParams struct {
	LR, Momentum, Decay, Coef float64
}

// Place says where the elements of a tensor lie in a logical one: element
// (i, j) of the view is element First + i*RowStride + j of the tensor ID.
type Place struct {
	ID               uint64
	First, RowStride uint64
}

// Kernels is the arithmetic of a training step. Letters: M, N, K matrix sizes,
// n tokens (rows), H hidden size, I intermediate size, V vocabulary.
//
// Outputs must not overlap inputs unless the comment allows it. Rows may be
// strided in MatMul*, AddBias, ColumnSum and Hash; all other tensors are
// contiguous. Zero sizes are allowed everywhere.
type Kernels interface {
	// Fill: x[i] = v.
	Fill(x Tensor, v float64)
	// Copy: dst[i] = src[i], bits kept.
	Copy(dst, src Tensor)
	// Add: dst[i] = x[i] + y[i]. dst may be x or y.
	Add(dst, x, y Tensor)
	// Scale: dst[i] = x[i] * s. dst may be x.
	Scale(dst, x Tensor, s float64)
	// AddBias: y[i][j] = y[i][j] + b[j].
	AddBias(y, b Tensor)
	// Residual: dst[i][j] = x[i][j] + (y[i][j] + b[j]), or x + y where b is
	// absent. dst may be x or y.
	Residual(dst, x, y, b Tensor)
	// ColumnSum continues: for i ascending: dst[j] = dst[j] + x[i][j].
	ColumnSum(dst, x Tensor)

	// MatMulNT: c[m][n] = tree over g of chain over k in group g of
	// (a[m][k], b[n][k]). groups holds G+1 ascending bounds from 0 to K; nil is
	// one group. a is M x K, b is N x K.
	MatMulNT(c, a, b Tensor, groups []int)
	// MatMulNN: c[m][n] = tree over g of one chain per group, which runs through
	// the terms in order and through k in group g of each:
	// (A[m][k], B[k][n]). All terms have the same number of groups.
	MatMulNN(c Tensor, terms []Term)
	// MatMulTN continues: c[m][n] = chain over k of (a[k][m], b[k][n]) from the
	// stored c. a is K x M, b is K x N.
	MatMulTN(c, a, b Tensor)

	// RMSNorm, per row: s = lanes(x*x)/H; rstd = 1/sqrt(s+eps);
	// y = (x*rstd)*w. rstd has n elements, w has H.
	RMSNorm(y, rstd, x, w Tensor, eps float64)
	// RMSNormGrad, per row: xh = x*rstd; d = dy*w; c = lanes(d*xh)/H;
	// dx = res + fma(-c, xh, d)*rstd (without "res +" where res is absent);
	// dw continues dw = fma(dy, xh, dw), rows ascending. dx may be dy or res.
	RMSNormGrad(dx, dw, dy, x, rstd, w, res Tensor)
	// Rope rotates in place each head of Dim = 2*cos.Cols elements of each row
	// by the half rotation: with row i of cos, sin at position i mod cos.Rows,
	// a = x[j], b = x[j+Dim/2]: x[j] = fma(-b, s, a*c), x[j+Dim/2] =
	// fma(a, s, b*c); inverse uses -s.
	Rope(x, cos, sin Tensor, inverse bool)
	// Attention, per sequence, head and query t, over keys j = 0..t:
	// s_j = chain(q.k_j)*scale; m = max s; e_j = exp(s_j-m);
	// p_j = e_j/lanes(e); o = chain over j of (p_j, v_j). p has
	// Seqs*Heads*T rows of T columns; columns beyond t are left as they are.
	Attention(o, p, q, k, v Tensor, h Heads)
	// AttentionGrad: dp_j = chain(do.v_j);
	// ds_j = (p_j*(dp_j - lanes(p*dp)))*scale; dq = chain over j of (ds_j, k_j).
	// Per key head and key group: dk_j and dv_j are chains, query heads of the
	// group ascending, then t ascending, of (ds_j, q_t) and (p_j, do_t), from
	// +0; then the tree over the key groups. p may be overwritten.
	AttentionGrad(dq, dk, dv, do, p, q, k, v Tensor, h Heads)
	// SwiGLU: sg = 1/(1+exp(-z)); h = (z*sg)*u. h may be z or u.
	SwiGLU(h, z, u Tensor)
	// SwiGLUGrad: du = dh*(z*sg); dz = (dh*u)*(sg*fma(z, 1-sg, 1)). dz may be z
	// or dh, du may be u; the two are distinct.
	SwiGLUGrad(dz, du, dh, z, u Tensor)

	// Embedding: x[i] = table[tokens[i]-first] + (+0) where the row is in the
	// table, +0 elsewhere. len(tokens) is the number of rows of x.
	Embedding(x, table Tensor, tokens []int32, first int)
	// EmbeddingGrad continues: for i ascending, where the row is in the table:
	// dtable[tokens[i]-first] = dtable[...] + dx[i].
	EmbeddingGrad(dtable, dx Tensor, tokens []int32, first int)
	// LogitsMax, per row i of z (n x local V): max[i] = max over columns;
	// target[i] = z[i][targets[i]-first] + (+0) where that column is local, +0
	// elsewhere.
	LogitsMax(max, target, z Tensor, targets []int32, first int)
	// LogitsExpSum, per row: z[j] = exp(z[j]-max), in place; sum = tree over g
	// of lanes(z over the columns of group g). groups as in MatMulNT, over the
	// columns of z.
	LogitsExpSum(sum, z, max Tensor, groups []int)
	// CrossEntropy, per row with target y >= 0: nll = (max + log sum) - target;
	// z[j] = (z[j]/sum - [first+j = y])*invN, in place (z holds the
	// exponentials before, the gradient of the logits after). Rows with a
	// negative target: nll = +0, z[j] = +0.
	CrossEntropy(nll, z, sum, max, target Tensor, targets []int32, first int, invN float64)

	// AdamW: g' = g*coef; m = fma(r1, g', b1*m); v = fma(r2, g'*g', b2*v);
	// u = (m/c1)/(sqrt(v/c2)+eps); u = fma(decay, w, u); w = fma(-lr, u, w).
	// r1 is float32(1-Beta1) of the float64 Beta1, likewise r2: the difference of
	// the rounded beta from 1 would be off by 1.3e-5 of itself at 0.999.
	AdamW(w, m, v, g Tensor, p AdamWParams)
	// SGD: g' = g*coef; g' = fma(decay, w, g'); b = fma(mu, b, g');
	// w = fma(-lr, b, w).
	SGD(w, b, g Tensor, p SGDParams)

	// Reduce: r = tree (Sum) or maximum (Max) over src, per element; every dst
	// gets r. Absent sources are absent leaves; all absent gives -0 (Sum) or
	// -Inf (Max). Any dst may be any src.
	Reduce(dst, src []Tensor, op Op)
	// SumSquares adds the exact sum of squares of x to acc.
	SumSquares(acc *SquareSum, x Tensor)
	// Hash adds the elements of x to d, at their places.
	Hash(d *Digest, x Tensor, at Place)
	// HashChanged adds, for each element whose bits differ between x and old
	// (all NaN equal), the element with bits 1 at its place, and counts them.
	HashChanged(d *Digest, x, old Tensor, at Place) (changed int)
}

// Backend is a named implementation of memory and kernels.
type Backend interface {
	Name() string
	Memory
	Kernels
}
