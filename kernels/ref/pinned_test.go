package ref_test

import (
	"testing"

	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// pinned is the digest of the workload below in arithmetic version 2, on every
// machine, architecture and GOAMD64 level. A change of it is a change of the
// arithmetic: kernels.Arithmetic must change with it.
const pinned = "97f9cde12543237d22648ed056683fe5"

// workload runs every kernel that rounds once, on values from integers alone.
type workload struct {
	*ref.Backend[float32]
	t     *testing.T
	state uint64
	sum   kernels.Digest
	ids   uint64
}

// input is rows x cols multiples of 2^-20 in (-2, 2).
func (w *workload) input(rows, cols int) kernels.Tensor {
	x := w.output(rows, cols)
	for i, v := 0, ref.Data[float32](x); i < len(v); i++ {
		w.state = w.state*6364136223846793005 + 1442695040888963407
		v[i] = float32(int64(w.state)>>42) / (1 << 20)
	}
	return x
}

func (w *workload) output(rows, cols int) kernels.Tensor {
	buf, err := w.Alloc(rows * cols)
	if err != nil {
		w.t.Fatal(err)
	}
	return kernels.Tensor{Buf: buf, Rows: rows, Cols: cols, Stride: cols}
}

func (w *workload) hash(x ...kernels.Tensor) {
	for _, x := range x {
		w.ids++
		w.Hash(&w.sum, x, kernels.Place{ID: w.ids, RowStride: uint64(x.Cols)})
	}
}

func (w *workload) products() {
	const m, n, k = 9, 13, 37
	c, e, f := w.output(m, n), w.output(m, n), w.input(m, n)
	w.MatMulNT(c, w.input(m, k), w.input(n, k), shard.Bounds(k, 4))
	w.MatMulNN(e, []kernels.Term{
		{A: w.input(m, k), B: w.input(k, n), Groups: shard.Bounds(k, 8)},
		{A: w.input(m, k), B: w.input(k, n), Groups: shard.Bounds(k, 8)},
	})
	w.MatMulTN(f, w.input(k, m), w.input(k, n))
	w.hash(c, e, f)
	w.Reduce([]kernels.Tensor{c}, []kernels.Tensor{c, e, {}, f, w.input(m, n)}, kernels.Sum)
	w.hash(c)
}

func (w *workload) block() {
	h := kernels.Heads{Seqs: 2, T: 37, Heads: 4, KVHeads: 2, Dim: 6, KVGroups: 2, Scale: 0.40824829046386301637}
	n, width, kv := h.Seqs*h.T, h.Heads*h.Dim, h.KVHeads*h.Dim
	x, y, rstd := w.input(n, width), w.output(n, width), w.output(1, n)
	scale, dw := w.input(1, width), w.output(1, width)
	w.RMSNorm(y, rstd, x, scale, 1e-5)
	w.Rope(y, w.input(h.T, h.Dim/2), w.input(h.T, h.Dim/2), false)
	o, p := w.output(n, width), w.output(h.Seqs*h.Heads*h.T, h.T)
	k, v, do := w.input(n, kv), w.input(n, kv), w.input(n, width)
	w.Attention(o, p, y, k, v, h)
	w.hash(y, rstd, o, p)
	dq, dk, dv := w.output(n, width), w.output(n, kv), w.output(n, kv)
	w.AttentionGrad(dq, dk, dv, do, p, y, k, v, h)
	w.hash(dq, dk, dv)
	w.SwiGLU(o, dq, do)
	w.SwiGLUGrad(y, dq, o, do, x)
	w.hash(o, y, dq)
	w.RMSNormGrad(y, dw, do, x, rstd, scale, dq)
	w.AddBias(y, scale)
	w.ColumnSum(dw, y)
	w.hash(y, dw)
}

func (w *workload) loss() {
	const n, v, h = 5, 70, 4
	targets := []int32{3, -1, 69, 7, 33}
	table, dtable, x := w.input(v, h), w.output(v, h), w.output(n, h)
	w.Embedding(x, table, targets, 0)
	w.EmbeddingGrad(dtable, x, targets, 0)
	z, max, hit, sum, nll := w.input(n, v), w.output(1, n), w.output(1, n), w.output(1, n), w.output(1, n)
	w.LogitsMax(max, hit, z, targets, 0)
	w.LogitsExpSum(sum, z, max, shard.Bounds(v, 4))
	w.CrossEntropy(nll, z, sum, max, hit, targets, 0, 0.2)
	w.hash(dtable, x, max, hit, sum, nll, z)
	weight, m, s := w.input(1, n*v), w.output(1, n*v), w.output(1, n*v)
	var squares kernels.SquareSum
	w.SumSquares(&squares, z)
	p := kernels.AdamWParams{LR: 0.01, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: 0.1, C1: 0.1, C2: 0.05, Coef: 1 / (1 + squares.Sum())}
	w.AdamW(weight, m, s, z.As(1, n*v), p)
	w.hash(weight, m, s)
	w.SGD(weight, m, z.As(1, n*v), kernels.SGDParams{LR: 0.02, Momentum: 0.9, Decay: 0.01, Coef: 0.5})
	w.hash(weight, m)
}

func TestPinnedDigest(t *testing.T) {
	w := &workload{Backend: ref.New[float32](), t: t}
	w.products()
	w.block()
	w.loss()
	if text, _ := w.sum.MarshalText(); string(text) != pinned {
		t.Errorf("digest of the workload is %s, want %s", text, pinned)
	}
}

// pinnedScalars is the digest of Exp32, Log32 and FMA32 over a sample of all
// bit patterns.
const pinnedScalars = "27e8f93fd559db1c1e3eba4917d9a83d"

func TestPinnedScalars(t *testing.T) {
	var sum kernels.Digest
	add := func(id, index uint64, x float32) {
		a, b := kernels.Mix(id, index, uint64(kernels.Bits(x)))
		sum.Add(kernels.Digest{A: a, B: b})
	}
	for u := uint64(0); u < 1<<32; u += 10_007 {
		x := fromB(uint32(u))
		e := ref.Exp32(x)
		add(1, u, e)
		add(2, u, ref.Log32(x))
		add(3, u, ref.FMA32(x, fromB(uint32(u*2654435761)), e))
	}
	for u := bitsAt(0.5); u < bitsAt(2); u += 101 { // every mantissa's neighbourhood
		add(2, u, ref.Log32(fromB(uint32(u))))
	}
	if sum.String() != pinnedScalars {
		t.Errorf("digest of the scalar functions is %s, want %s", sum, pinnedScalars)
	}
}
