package bound_test

import (
	"math"

	"github.com/lockstep-ml/lockstep/kernels"
)

// kind says how the elements of an operand are drawn.
type kind int

const (
	signed kind = iota
	positive
	exact // as positive, without an error
	zero
)

type operand struct {
	rows, cols int
	kind       kind
}

// kernelCase is one call of a kernel: its operands, which of them are results,
// and the call.
type kernelCase struct {
	name     string
	operands []operand
	results  []int
	call     func(k kernels.Kernels, t []kernels.Tensor)
}

// cases are calls of every kernel that computes, with odd shapes.
func cases() []kernelCase {
	return append(append(plainCases(), matrixCases()...), modelCases()...)
}

func plainCases() []kernelCase {
	x := operand{3, 7, signed}
	return []kernelCase{
		{"Fill", []operand{{3, 7, zero}}, []int{0}, func(k kernels.Kernels, t []kernels.Tensor) { k.Fill(t[0], 0.1) }},
		{"Copy", []operand{x, x}, []int{1}, func(k kernels.Kernels, t []kernels.Tensor) { k.Copy(t[1], t[0]) }},
		{"Add", []operand{x, x}, []int{0}, func(k kernels.Kernels, t []kernels.Tensor) { k.Add(t[0], t[0], t[1]) }},
		{"Scale", []operand{x, x}, []int{1}, func(k kernels.Kernels, t []kernels.Tensor) { k.Scale(t[1], t[0], 1/3.) }},
		{"AddBias", []operand{x, {1, 7, signed}}, []int{0}, func(k kernels.Kernels, t []kernels.Tensor) { k.AddBias(t[0], t[1]) }},
		{"Residual", []operand{x, x, x}, []int{2}, func(k kernels.Kernels, t []kernels.Tensor) { k.Residual(t[2], t[0], t[1], kernels.Tensor{}) }},
		{"Residual with bias", []operand{x, x, {1, 7, signed}}, []int{1}, func(k kernels.Kernels, t []kernels.Tensor) { k.Residual(t[1], t[0], t[1], t[2]) }},
		{"ColumnSum", []operand{{1, 5, signed}, {3, 7, signed}}, []int{0}, func(k kernels.Kernels, t []kernels.Tensor) { k.ColumnSum(t[0], t[1].ColRange(1, 6)) }},
		{"Rope", []operand{{6, 12, signed}, {3, 2, positive}, {3, 2, positive}}, []int{0}, func(k kernels.Kernels, t []kernels.Tensor) { k.Rope(t[0], t[1], t[2], false) }},
		{"Rope inverse", []operand{{6, 12, signed}, {3, 2, positive}, {3, 2, positive}}, []int{0}, func(k kernels.Kernels, t []kernels.Tensor) { k.Rope(t[0], t[1], t[2], true) }},
		{"SwiGLU", []operand{x, x}, []int{0}, func(k kernels.Kernels, t []kernels.Tensor) { k.SwiGLU(t[0], t[0], t[1]) }},
		{"SwiGLUGrad", []operand{x, x, x, x}, []int{0, 2}, func(k kernels.Kernels, t []kernels.Tensor) { k.SwiGLUGrad(t[0], t[2], t[1], t[3], t[2]) }},
		{"Reduce sum", []operand{x, x, x}, []int{0, 1}, func(k kernels.Kernels, t []kernels.Tensor) {
			k.Reduce(t[:2], []kernels.Tensor{t[0], {}, t[1], t[2]}, kernels.Sum)
		}},
		{"Reduce max", []operand{x, x, x}, []int{0}, func(k kernels.Kernels, t []kernels.Tensor) { k.Reduce(t[:1], t, kernels.Max) }},
		{"empty", []operand{{0, 7, signed}, {0, 7, signed}}, []int{0}, func(k kernels.Kernels, t []kernels.Tensor) { k.SwiGLU(t[0], t[0], t[1]) }},
	}
}

func matrixCases() []kernelCase {
	return []kernelCase{
		{"MatMulNT", []operand{{5, 33, signed}, {3, 33, signed}, {5, 3, zero}}, []int{2}, func(k kernels.Kernels, t []kernels.Tensor) {
			k.MatMulNT(t[2], t[0], t[1], []int{0, 0, 17, 33})
		}},
		{"MatMulNT of nothing", []operand{{5, 0, signed}, {3, 0, signed}, {5, 3, zero}}, []int{2}, func(k kernels.Kernels, t []kernels.Tensor) {
			k.MatMulNT(t[2], t[0], t[1], nil)
		}},
		{"MatMulNN", []operand{{5, 8, signed}, {8, 3, signed}, {5, 5, signed}, {5, 3, signed}, {5, 3, zero}}, []int{4}, func(k kernels.Kernels, t []kernels.Tensor) {
			k.MatMulNN(t[4], []kernels.Term{{A: t[0], B: t[1], Groups: []int{0, 4, 8}}, {A: t[2], B: t[3], Groups: []int{0, 5, 5}}})
		}},
		{"MatMulTN", []operand{{9, 4, signed}, {9, 5, signed}, {3, 5, signed}}, []int{2}, func(k kernels.Kernels, t []kernels.Tensor) {
			k.MatMulTN(t[2], t[0].ColRange(1, 4), t[1])
		}},
	}
}

func modelCases() []kernelCase {
	const seqs, length, heads, kv, dim = 2, 5, 6, 3, 4
	h := kernels.Heads{Seqs: seqs, T: length, Heads: heads, KVHeads: kv, Dim: dim, KVGroups: 2, Scale: 1 / math.Sqrt(dim)}
	q, k, p := operand{seqs * length, heads * dim, signed}, operand{seqs * length, kv * dim, signed}, operand{seqs * length * heads, length, zero}
	given := p
	given.kind = positive
	tokens, targets := []int32{3, 0, 9, 3, 3, 2}, []int32{1, -1, 8, 4, 12, 2}
	return append(lossCases(tokens, targets), []kernelCase{
		{"RMSNorm", []operand{{4, 35, signed}, {1, 35, signed}, {4, 35, zero}, {1, 4, zero}}, []int{2, 3}, func(k kernels.Kernels, t []kernels.Tensor) {
			k.RMSNorm(t[2], t[3], t[0], t[1], 1e-5)
		}},
		{"RMSNormGrad", []operand{{4, 35, zero}, {1, 35, signed}, {4, 35, signed}, {4, 35, signed}, {1, 4, positive}, {1, 35, signed}, {4, 35, signed}}, []int{0, 1},
			func(k kernels.Kernels, t []kernels.Tensor) { k.RMSNormGrad(t[0], t[1], t[2], t[3], t[4], t[5], t[6]) }},
		{"RMSNormGrad in place", []operand{{4, 3, signed}, {1, 3, zero}, {4, 3, signed}, {1, 4, positive}, {1, 3, signed}}, []int{0, 1},
			func(k kernels.Kernels, t []kernels.Tensor) {
				k.RMSNormGrad(t[0], t[1], t[0], t[2], t[3], t[4], kernels.Tensor{})
			}},
		{"Attention", []operand{q, k, k, q, p}, []int{3, 4}, func(kn kernels.Kernels, t []kernels.Tensor) {
			kn.Attention(t[3], t[4], t[0], t[1], t[2], h)
		}},
		{"AttentionGrad", []operand{q, k, k, q, given, q, k, k}, []int{5, 6, 7}, func(kn kernels.Kernels, t []kernels.Tensor) {
			kn.AttentionGrad(t[5], t[6], t[7], t[3], t[4], t[0], t[1], t[2], h)
		}},
	}...)
}

func lossCases(tokens, targets []int32) []kernelCase {
	n := len(targets)
	row := func(kind kind) operand { return operand{1, n, kind} }
	return []kernelCase{
		{"Embedding", []operand{{5, 7, signed}, {len(tokens), 7, zero}}, []int{1}, func(k kernels.Kernels, t []kernels.Tensor) {
			k.Embedding(t[1], t[0], tokens, 1)
		}},
		{"EmbeddingGrad", []operand{{5, 7, signed}, {len(tokens), 7, signed}}, []int{0}, func(k kernels.Kernels, t []kernels.Tensor) {
			k.EmbeddingGrad(t[0], t[1], tokens, 1)
		}},
		{"LogitsMax", []operand{{n, 11, signed}, row(zero), row(zero)}, []int{1, 2}, func(k kernels.Kernels, t []kernels.Tensor) {
			k.LogitsMax(t[1], t[2], t[0], targets, 1)
		}},
		{"LogitsExpSum", []operand{{n, 11, signed}, row(exact), row(zero)}, []int{0, 2}, func(k kernels.Kernels, t []kernels.Tensor) {
			k.LogitsExpSum(t[2], t[0], t[1], []int{0, 6, 11})
		}},
		// Exponentials and their sum have bounds relative to each other, so the
		// three kernels are judged together, whole and split over two ranks.
		{"CrossEntropy", []operand{{n, 11, signed}, row(zero), row(zero), row(zero), row(zero)}, []int{0, 4}, func(k kernels.Kernels, t []kernels.Tensor) {
			k.LogitsMax(t[1], t[2], t[0], targets, 1)
			k.LogitsExpSum(t[3], t[0], t[1], []int{0, 6, 11})
			k.CrossEntropy(t[4], t[0], t[3], t[1], t[2], targets, 1, 1./3)
		}},
		{"CrossEntropy of two ranks", []operand{{n, 6, signed}, {n, 5, signed}, row(zero), row(zero), row(zero), row(zero), row(zero), row(zero), row(zero), row(zero)}, []int{0, 1, 8, 9},
			func(k kernels.Kernels, t []kernels.Tensor) {
				k.LogitsMax(t[2], t[4], t[0], targets, 1)
				k.LogitsMax(t[3], t[5], t[1], targets, 7)
				k.Reduce(t[2:4], t[2:4], kernels.Max)
				k.Reduce(t[4:6], t[4:6], kernels.Sum)
				k.LogitsExpSum(t[6], t[0], t[2], nil)
				k.LogitsExpSum(t[7], t[1], t[3], nil)
				k.Reduce(t[6:8], t[6:8], kernels.Sum)
				k.CrossEntropy(t[8], t[0], t[6], t[2], t[4], targets, 1, 1./3)
				k.CrossEntropy(t[9], t[1], t[7], t[3], t[5], targets, 7, 1./3)
			}},
	}
}
