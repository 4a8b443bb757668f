package kerneltest

import (
	"math/rand/v2"
	"testing"

	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/null"
)

// Shapes of a Llama of 50 million parameters.
const (
	benchHidden       = 512
	benchIntermediate = 2048
	benchHeads        = 8
	benchKVHeads      = 4
	benchHeadDim      = 64
	benchVocab        = 8192
	benchTokens       = 512
	benchShortTokens  = 64 // with -short, for backends in plain Go and simulated ones
)

// quarters cuts n, a multiple of four, into four groups.
func quarters(n int) []int { return []int{0, n / 4, n / 2, n / 4 * 3, n} }

// benchmark is one kernel at one shape; call is timed over tensors that m made.
type benchmark struct {
	name string
	call func(k kernels.Kernels, m func(rows, cols int) kernels.Tensor) func()
}

// Bench times every kernel at the shapes of a training step: hidden size 512,
// intermediate size 2048, 8 heads over 4 key heads, vocabulary 8192, 4 groups,
// one sequence of 512 tokens (64 with -short). Beside ns/op it reports GFLOP/s
// and GB/s by the counts of package null. open is called once.
func Bench(b *testing.B, open func(b *testing.B) kernels.Backend) {
	k, tokens := open(b), benchTokens
	if testing.Short() {
		tokens = benchShortTokens
	}
	for _, bm := range benchmarks(tokens) {
		b.Run(bm.name, func(b *testing.B) {
			work := measure(bm)
			var bufs []kernels.Buffer
			defer func() {
				for _, buf := range bufs {
					k.Free(buf)
				}
			}()
			f := bm.call(k, func(rows, cols int) kernels.Tensor {
				buf, err := k.Alloc(rows * cols)
				if err != nil {
					b.Fatal(err)
				}
				bufs = append(bufs, buf)
				x := make([]float32, rows*cols)
				r := rand.New(rand.NewPCG(uint64(len(bufs)), 1))
				for i := range x {
					x[i] = r.Float32()
				}
				k.Write(kernels.Flat(buf), x)
				return kernels.Flat(buf).As(rows, cols)
			})
			f() // warm: pages, caches, compiled kernels
			if err := k.Sync(); err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			for range b.N { // Loop would end the time before a device is done
				f()
			}
			if err := k.Sync(); err != nil {
				b.Fatal(err)
			}
			ns := float64(b.Elapsed().Nanoseconds()) / float64(b.N)
			b.ReportMetric(float64(work.FLOPs)/ns, "GFLOP/s")
			b.ReportMetric(float64(work.BytesRead+work.BytesWritten)/ns, "GB/s")
		})
	}
}

// measure is the work of one call.
func measure(bm benchmark) null.Count {
	dry := null.New()
	f := bm.call(dry, func(rows, cols int) kernels.Tensor {
		buf, err := dry.Alloc(rows * cols)
		if err != nil {
			return kernels.Tensor{}
		}
		return kernels.Flat(buf).As(rows, cols)
	})
	dry.Reset()
	f()
	var sum null.Count
	for _, c := range dry.Counts().Kernels {
		sum.FLOPs += c.FLOPs
		sum.BytesRead += c.BytesRead
		sum.BytesWritten += c.BytesWritten
	}
	return sum
}

// benchmarks lists the kernels of a step over T tokens.
func benchmarks(T int) []benchmark {
	return append(append(productBenchmarks(T), blockBenchmarks(T)...), updateBenchmarks(T)...)
}

// productBenchmarks are the matrix products of an MLP: forward, dX, dW.
func productBenchmarks(T int) []benchmark {
	const h, i = benchHidden, benchIntermediate
	type tensor = func(rows, cols int) kernels.Tensor
	return []benchmark{
		{"MatMulNT/up", func(k kernels.Kernels, m tensor) func() {
			c, a, w := m(T, i), m(T, h), m(i, h)
			return func() { k.MatMulNT(c, a, w, nil) }
		}},
		{"MatMulNT/down", func(k kernels.Kernels, m tensor) func() {
			c, a, w, g := m(T, h), m(T, i), m(h, i), quarters(i)
			return func() { k.MatMulNT(c, a, w, g) }
		}},
		{"MatMulNN/dx", func(k kernels.Kernels, m tensor) func() {
			g := quarters(i)
			c, terms := m(T, h), []kernels.Term{{A: m(T, i), B: m(i, h), Groups: g}, {A: m(T, i), B: m(i, h), Groups: g}}
			return func() { k.MatMulNN(c, terms) }
		}},
		{"MatMulTN/dw", func(k kernels.Kernels, m tensor) func() {
			c, a, x := m(i, h), m(T, i), m(T, h)
			return func() { k.MatMulTN(c, a, x) }
		}},
	}
}

// blockBenchmarks are the other kernels of a block, and the loss.
func blockBenchmarks(T int) []benchmark {
	const h, i, q, kv = benchHidden, benchIntermediate, benchHeads * benchHeadDim, benchKVHeads * benchHeadDim
	type tensor = func(rows, cols int) kernels.Tensor
	hs := kernels.Heads{Seqs: 1, T: T, Heads: benchHeads, KVHeads: benchKVHeads, Dim: benchHeadDim, KVGroups: 1, Scale: 0.125}
	ids := make([]int32, T)
	for i, r := 0, rand.New(rand.NewPCG(1, 2)); i < T; i++ {
		ids[i] = int32(r.IntN(benchVocab+benchVocab/8)) - benchVocab/16 // some beyond the table
	}
	return []benchmark{
		{"RMSNorm", func(k kernels.Kernels, m tensor) func() {
			y, r, x, w := m(T, h), m(1, T), m(T, h), m(1, h)
			return func() { k.RMSNorm(y, r, x, w, 1e-5) }
		}},
		{"RMSNormGrad", func(k kernels.Kernels, m tensor) func() {
			dx, dw, dy, x, r, w, res := m(T, h), m(1, h), m(T, h), m(T, h), m(1, T), m(1, h), m(T, h)
			return func() { k.RMSNormGrad(dx, dw, dy, x, r, w, res) }
		}},
		{"CopyRope", func(k kernels.Kernels, m tensor) func() {
			start, x, c, s := m(T, q), m(T, q), m(T, benchHeadDim/2), m(T, benchHeadDim/2)
			return func() {
				k.Copy(x, start) // or x would shrink to subnormals
				k.Rope(x, c, s, false)
			}
		}},
		{"Attention", func(k kernels.Kernels, m tensor) func() {
			o, p, x, y, v := m(T, q), m(T*benchHeads, T), m(T, q), m(T, kv), m(T, kv)
			return func() { k.Attention(o, p, x, y, v, hs) }
		}},
		{"AttentionGrad", func(k kernels.Kernels, m tensor) func() {
			dq, dk, dv, do, p, x, y, v := m(T, q), m(T, kv), m(T, kv), m(T, q), m(T*benchHeads, T), m(T, q), m(T, kv), m(T, kv)
			return func() { k.AttentionGrad(dq, dk, dv, do, p, x, y, v, hs) }
		}},
		{"SwiGLU", func(k kernels.Kernels, m tensor) func() {
			y, z, u := m(T, i), m(T, i), m(T, i)
			return func() { k.SwiGLU(y, z, u) }
		}},
		{"SwiGLUGrad", func(k kernels.Kernels, m tensor) func() {
			dz, du, dh, z, u := m(T, i), m(T, i), m(T, i), m(T, i), m(T, i)
			return func() { k.SwiGLUGrad(dz, du, dh, z, u) }
		}},
		{"Loss", func(k kernels.Kernels, m tensor) func() {
			nll, z, sum, top, target, g := m(1, T), m(T, benchVocab), m(1, T), m(1, T), m(1, T), quarters(benchVocab)
			return func() {
				k.LogitsMax(top, target, z, ids, 0)
				k.LogitsExpSum(sum, z, top, g)
				k.CrossEntropy(nll, z, sum, top, target, ids, 0, 1.0/benchTokens)
			}
		}},
		{"Embedding", func(k kernels.Kernels, m tensor) func() {
			x, table := m(T, h), m(benchVocab, h)
			return func() { k.Embedding(x, table, ids, 0) }
		}},
		{"EmbeddingGrad", func(k kernels.Kernels, m tensor) func() {
			table, dx := m(benchVocab, h), m(T, h)
			return func() { k.EmbeddingGrad(table, dx, ids, 0) }
		}},
		{"Residual", func(k kernels.Kernels, m tensor) func() {
			y, x, z := m(T, h), m(T, h), m(T, h)
			return func() { k.Residual(y, x, z, kernels.Tensor{}) }
		}},
		{"AddBias", func(k kernels.Kernels, m tensor) func() {
			y, b := m(T, q), m(1, q)
			return func() { k.AddBias(y, b) }
		}},
		{"ColumnSum", func(k kernels.Kernels, m tensor) func() {
			db, dy := m(1, q), m(T, q)
			return func() { k.ColumnSum(db, dy) }
		}},
	}
}

// updateBenchmarks are what runs over all parameters; T scales their number.
func updateBenchmarks(T int) []benchmark {
	n := T * 2048
	p := kernels.AdamWParams{LR: 3e-4, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: 0.1, C1: 0.40951, C2: 0.2262190625, Coef: 1}
	type tensor = func(rows, cols int) kernels.Tensor
	return []benchmark{
		{"AdamW", func(k kernels.Kernels, m tensor) func() {
			w, a, v, g := m(1, n), m(1, n), m(1, n), m(1, n)
			return func() { k.AdamW(w, a, v, g, p) }
		}},
		{"SGD", func(k kernels.Kernels, m tensor) func() {
			w, v, g := m(1, n), m(1, n), m(1, n)
			return func() { k.SGD(w, v, g, kernels.SGDParams{LR: 1e-3, Momentum: 0.9, Decay: 0.1, Coef: 1}) }
		}},
		{"Reduce/4", func(k kernels.Kernels, m tensor) func() {
			dst, src := []kernels.Tensor{m(1, n)}, []kernels.Tensor{m(1, n), m(1, n), m(1, n), m(1, n)}
			return func() { k.Reduce(dst, src, kernels.Sum) }
		}},
		{"SumSquares", func(k kernels.Kernels, m tensor) func() {
			x, acc := m(1, n), new(kernels.SquareSum)
			return func() { k.SumSquares(acc, x) }
		}},
		{"Hash", func(k kernels.Kernels, m tensor) func() {
			x, d := m(1, n), new(kernels.Digest)
			return func() { k.Hash(d, x, kernels.Place{ID: 1}) }
		}},
		{"HashChanged", func(k kernels.Kernels, m tensor) func() {
			x, y, d := m(1, n), m(1, n), new(kernels.Digest)
			return func() { k.HashChanged(d, x, y, kernels.Place{ID: 1}) }
		}},
		{"Copy", func(k kernels.Kernels, m tensor) func() {
			x, y := m(1, n), m(1, n)
			return func() { k.Copy(x, y) }
		}},
		{"Scale", func(k kernels.Kernels, m tensor) func() {
			x, y := m(1, n), m(1, n)
			return func() { k.Scale(x, y, 0.5) }
		}},
		{"Add", func(k kernels.Kernels, m tensor) func() {
			x, y, z := m(1, n), m(1, n), m(1, n)
			return func() { k.Add(x, y, z) }
		}},
		{"Fill", func(k kernels.Kernels, m tensor) func() {
			x := m(1, n)
			return func() { k.Fill(x, 0.5) }
		}},
	}
}
