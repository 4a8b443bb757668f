package ref_test

import (
	"math/rand/v2"
	"testing"

	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// bench holds the tensors of a benchmark.
type bench[T ref.Float] struct {
	*ref.Backend[T]
	b *testing.B
	r *rand.Rand
}

func newBench[T ref.Float](b *testing.B) *bench[T] {
	return &bench[T]{ref.New[T](), b, rand.New(rand.NewPCG(1, 1))}
}

func (b *bench[T]) tensor(rows, cols int) kernels.Tensor {
	buf, err := b.Alloc(rows * cols)
	if err != nil {
		b.b.Fatal(err)
	}
	t := kernels.Tensor{Buf: buf, Rows: rows, Cols: cols, Stride: cols}
	for i, v := 0, ref.Data[T](t); i < len(v); i++ {
		v[i] = T(b.r.NormFloat64())
	}
	return t
}

// run repeats f and reports the time per inner step.
func (b *bench[T]) run(steps int, unit string, f func()) {
	b.b.ReportAllocs()
	for b.b.Loop() {
		f()
	}
	b.b.ReportMetric(float64(b.b.Elapsed().Nanoseconds())/float64(b.b.N)/float64(steps), "ns/"+unit)
}

func benchMatMul[T ref.Float](b *testing.B, f func(k *bench[T], c, a, w kernels.Tensor, groups []int)) {
	const m, n, k = 64, 64, 64
	d := newBench[T](b)
	c, a, w := d.tensor(m, n), d.tensor(m, k), d.tensor(n, k)
	groups := shard.Bounds(k, 4)
	d.run(m*n*k, "fma", func() { f(d, c, a, w, groups) })
}

func nt[T ref.Float](d *bench[T], c, a, w kernels.Tensor, groups []int) { d.MatMulNT(c, a, w, groups) }

func nn[T ref.Float](d *bench[T], c, a, w kernels.Tensor, groups []int) {
	d.MatMulNN(c, []kernels.Term{{A: a, B: w, Groups: groups}})
}

func tn[T ref.Float](d *bench[T], c, a, w kernels.Tensor, _ []int) { d.MatMulTN(c, a, w) }

func BenchmarkMatMulNT(b *testing.B)   { benchMatMul(b, nt[float32]) }
func BenchmarkMatMulNN(b *testing.B)   { benchMatMul(b, nn[float32]) }
func BenchmarkMatMulTN(b *testing.B)   { benchMatMul(b, tn[float32]) }
func BenchmarkMatMulNT64(b *testing.B) { benchMatMul(b, nt[float64]) }
func BenchmarkMatMulNN64(b *testing.B) { benchMatMul(b, nn[float64]) }

// nano is the attention of the fixture of that name, for four sequences.
var nano = kernels.Heads{Seqs: 4, T: 32, Heads: 8, KVHeads: 4, Dim: 8, KVGroups: 1, Scale: 0.35355339059327379}

func BenchmarkAttention(b *testing.B) {
	d, h := newBench[float32](b), nano
	n := h.Seqs * h.T
	q, k, v := d.tensor(n, h.Heads*h.Dim), d.tensor(n, h.KVHeads*h.Dim), d.tensor(n, h.KVHeads*h.Dim)
	o, p := d.tensor(n, h.Heads*h.Dim), d.tensor(h.Seqs*h.Heads*h.T, h.T)
	d.run(h.Seqs*h.Heads*h.T*(h.T+1)/2, "pair", func() { d.Attention(o, p, q, k, v, h) })
}

func BenchmarkAttentionGrad(b *testing.B) {
	d, h := newBench[float32](b), nano
	n := h.Seqs * h.T
	q, k, v := d.tensor(n, h.Heads*h.Dim), d.tensor(n, h.KVHeads*h.Dim), d.tensor(n, h.KVHeads*h.Dim)
	dq, dk, dv := d.tensor(n, h.Heads*h.Dim), d.tensor(n, h.KVHeads*h.Dim), d.tensor(n, h.KVHeads*h.Dim)
	do, p := d.tensor(n, h.Heads*h.Dim), d.tensor(h.Seqs*h.Heads*h.T, h.T)
	d.run(h.Seqs*h.Heads*h.T*(h.T+1)/2, "pair", func() { d.AttentionGrad(dq, dk, dv, do, p, q, k, v, h) })
}

func BenchmarkAdamW(b *testing.B) {
	const n = 1 << 14
	d := newBench[float32](b)
	w, m, v, g := d.tensor(1, n), d.tensor(1, n), d.tensor(1, n), d.tensor(1, n)
	for i, x := range ref.Data[float32](v) {
		ref.Data[float32](v)[i] = x * x
	}
	p := kernels.AdamWParams{LR: 1e-5, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: 0.1, C1: 1, C2: 1, Coef: 1}
	d.run(n, "element", func() { d.AdamW(w, m, v, g, p) })
}

func BenchmarkSwiGLU(b *testing.B) {
	const n = 1 << 12
	d := newBench[float32](b)
	h, z, u := d.tensor(1, n), d.tensor(1, n), d.tensor(1, n)
	d.run(n, "element", func() { d.SwiGLU(h, z, u) })
}

func BenchmarkSumSquares(b *testing.B) {
	const n = 1 << 16
	d := newBench[float32](b)
	x := d.tensor(1, n)
	var s kernels.SquareSum
	d.run(n, "element", func() { d.SumSquares(&s, x) })
}

func BenchmarkHash(b *testing.B) {
	const n = 1 << 14
	d := newBench[float32](b)
	x := d.tensor(1, n)
	var s kernels.Digest
	d.run(n, "element", func() { d.Hash(&s, x, kernels.Place{ID: 1}) })
}

func BenchmarkReduce(b *testing.B) {
	const n = 1 << 14
	d := newBench[float32](b)
	src := []kernels.Tensor{d.tensor(1, n), d.tensor(1, n), d.tensor(1, n), d.tensor(1, n)}
	dst := d.tensor(1, n)
	d.run(n, "element", func() { d.Reduce([]kernels.Tensor{dst}, src, kernels.Sum) })
}
