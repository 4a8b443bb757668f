package cpu_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/cpu"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// step is one call of every kernel, at shapes that are shared over threads.
func step(tb testing.TB, k kernels.Backend, seed uint64) (calls map[string]func(), tensors []kernels.Tensor) {
	tb.Helper()
	const n, h, i, v, q, kv = 96, 192, 800, 700, 192, 96
	r := rand.New(rand.NewPCG(seed, 1))
	m := func(rows, cols int) kernels.Tensor {
		buf, err := k.Alloc(rows * cols)
		if err != nil {
			tb.Fatal(err)
		}
		x := make([]float32, rows*cols)
		for j := range x {
			x[j] = float32(r.Float64() - 0.4)
		}
		k.Write(kernels.Flat(buf), x)
		t := kernels.Flat(buf).As(rows, cols)
		tensors = append(tensors, t)
		return t
	}
	ids := make([]int32, n)
	for j := range ids {
		ids[j] = int32(r.IntN(v+9)) - 3
	}
	hs := kernels.Heads{Seqs: 1, T: n, Heads: 4, KVHeads: 2, Dim: q / 4, KVGroups: 2, Scale: 0.2}
	x, y, z, w, b, rstd := m(n, h), m(n, h), m(n, h), m(1, h), m(1, h), m(1, n)
	up, gate, act, dz, du := m(n, i), m(n, i), m(n, i), m(n, i), m(n, i)
	wu, wd, dwu := m(i, h), m(h, i), m(i, h)
	groups := shard.Bounds(i, 4)
	terms := []kernels.Term{{A: dz, B: wu, Groups: groups}, {A: du, B: wu, Groups: groups}}
	qx, kx, vx, ox := m(n, q), m(n, kv), m(n, kv), m(n, q)
	dq, dk, dv, p := m(n, q), m(n, kv), m(n, kv), m(4*n, n)
	cos, sin := m(n, hs.Dim/2), m(n, hs.Dim/2)
	table, dtable, logits := m(v, h), m(v, h), m(n, v)
	top, target, sum, nll := m(1, n), m(1, n), m(1, n), m(1, n)
	vocabulary := shard.Bounds(v, 4)
	m1, m2, ww, g := m(1, i*h), m(1, i*h), m(1, i*h), m(1, i*h)
	dst, src := []kernels.Tensor{m1}, []kernels.Tensor{ww, g, {}, m2}
	squares, digest := new(kernels.SquareSum), new(kernels.Digest)
	adam := kernels.AdamWParams{LR: 1e-3, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, Decay: 0.1, C1: 0.5, C2: 0.5, Coef: 1}
	return map[string]func(){
		"Fill": func() { k.Fill(act, 0.5) }, "Copy": func() { k.Copy(act, up) }, "Add": func() { k.Add(act, up, gate) },
		"Scale": func() { k.Scale(act, up, 0.5) }, "AddBias": func() { k.AddBias(x, b) }, "Residual": func() { k.Residual(y, x, z, b) },
		"ColumnSum": func() { k.ColumnSum(w, x) }, "MatMulNT": func() { k.MatMulNT(act, x, wu, nil) },
		"MatMulNT/groups": func() { k.MatMulNT(y, act, wd, groups) }, "MatMulNN": func() { k.MatMulNN(z, terms) },
		"MatMulTN": func() { k.MatMulTN(dwu, dz, x) }, "RMSNorm": func() { k.RMSNorm(y, rstd, x, w, 1e-5) },
		"RMSNormGrad": func() { k.RMSNormGrad(z, w, y, x, rstd, b, x) }, "Rope": func() { k.Rope(qx, cos, sin, true) },
		"Attention": func() { k.Attention(ox, p, qx, kx, vx, hs) }, "AttentionGrad": func() { k.AttentionGrad(dq, dk, dv, ox, p, qx, kx, vx, hs) },
		"SwiGLU": func() { k.SwiGLU(act, gate, up) }, "SwiGLUGrad": func() { k.SwiGLUGrad(dz, du, act, gate, up) },
		"Embedding": func() { k.Embedding(x, table, ids, 2) }, "EmbeddingGrad": func() { k.EmbeddingGrad(dtable, x, ids, 2) },
		"LogitsMax":    func() { k.LogitsMax(top, target, logits, ids, 2) },
		"LogitsExpSum": func() { k.LogitsExpSum(sum, logits, top, vocabulary) },
		"CrossEntropy": func() { k.CrossEntropy(nll, logits, sum, top, target, ids, 2, 0.1) },
		"AdamW":        func() { k.AdamW(ww, m1, m2, g, adam) },
		"SGD":          func() { k.SGD(ww, m1, g, kernels.SGDParams{LR: 0.1, Momentum: 0.9, Decay: 0.1, Coef: 1}) },
		"Reduce":       func() { k.Reduce(dst, src, kernels.Sum) }, "Reduce/max": func() { k.Reduce(dst, src, kernels.Max) },
		"SumSquares": func() { k.SumSquares(squares, ww) }, "Hash": func() { k.Hash(digest, wd, kernels.Place{ID: 3}) },
		"HashChanged": func() { k.HashChanged(digest, ww, g, kernels.Place{ID: 3}) },
	}, tensors
}

// TestAllocations: once warm, no kernel allocates, on one thread or several.
func TestAllocations(t *testing.T) {
	for _, isa := range cpu.ISAs() {
		if isa == cpu.Ref {
			continue // package ref is not held to this
		}
		for _, threads := range []int{1, 2} {
			calls, _ := step(t, open(t, isa, threads), 1)
			for name, f := range calls {
				for range 4 { // workspaces of all threads
					f()
				}
				if n := testing.AllocsPerRun(20, f); n > 0 {
					t.Errorf("%s, %d threads: %s: %g allocations per call", isa, threads, name, n)
				}
			}
		}
	}
}

// TestConcurrent: several goroutines share one backend and its workers, each
// with its own tensors, and all get the bits of package ref.
func TestConcurrent(t *testing.T) {
	const callers = 3
	names := []string{"MatMulNT", "SwiGLU", "MatMulNT/groups", "RMSNorm", "Attention", "AttentionGrad", "MatMulTN", "LogitsExpSum", "Reduce", "AdamW", "SwiGLUGrad", "MatMulNN", "RMSNormGrad"}
	want := make([][]kernels.Tensor, callers)
	for i := range callers {
		calls, tensors := step(t, ref.New[float32](), uint64(i))
		for _, n := range names {
			calls[n]()
		}
		want[i] = tensors
	}
	for _, isa := range cpu.ISAs() {
		b := open(t, isa, 3)
		var group sync.WaitGroup
		errs := make([]error, callers)
		for i := range callers {
			calls, tensors := step(t, b, uint64(i))
			group.Go(func() {
				for _, n := range names {
					calls[n]()
				}
				errs[i] = difference(tensors, want[i])
			})
		}
		group.Wait()
		for i, err := range errs {
			if err != nil {
				t.Errorf("%s, caller %d: %v", isa, i, err)
			}
		}
	}
}

// difference finds the first element that is not the same in two sets of
// contiguous tensors.
func difference(got, want []kernels.Tensor) error {
	for i, x := range got {
		a, b := ref.Data[float32](x), ref.Data[float32](want[i])
		for j := range a {
			if kernels.Bits(a[j]) != kernels.Bits(b[j]) {
				return fmt.Errorf("tensor %d, element %d: %g, want %g", i, j, a[j], b[j])
			}
		}
	}
	return nil
}

// TestWorkersEnd: the workers of a backend that is no longer used end.
func TestWorkersEnd(t *testing.T) {
	if len(cpu.ISAs()) == 1 {
		return // plain Go has no workers
	}
	workers := func() int {
		buf := make([]byte, 1<<20)
		return strings.Count(string(buf[:runtime.Stack(buf, true)]), "cpu.work(")
	}
	for range 200 {
		runtime.GC() // backends of earlier tests
		if workers() == 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	before := workers()
	b := open(t, "", 4)
	calls, _ := step(t, b, 1)
	calls["MatMulNT"]()
	if n := workers() - before; n != 3 {
		t.Fatalf("%d workers for 4 threads, want 3", n)
	}
	runtime.KeepAlive(b)
	b, calls = nil, nil
	for range 500 {
		runtime.GC()
		if workers() <= before {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Errorf("%d workers are left", workers()-before)
}

// FuzzMatMul: products of any shape and any values have the bits of package ref.
func FuzzMatMul(f *testing.F) {
	f.Add(uint8(7), uint8(65), uint16(400), uint8(4), uint64(1))
	f.Add(uint8(1), uint8(0), uint16(0), uint8(1), uint64(2))
	f.Add(uint8(13), uint8(47), uint16(17), uint8(3), uint64(3))
	f.Fuzz(func(t *testing.T, m, n uint8, k uint16, groups uint8, seed uint64) {
		mm, nn, kk, g := int(m%40), int(n), int(k%1200), int(groups%16)+1
		bounds := shard.Bounds(kk, g)
		check(t, seed, []int{mm * kk, nn * kk, mm * nn, mm * nn, mm * nn}, func(b kernels.Backend, x []kernels.Tensor) {
			b.MatMulNT(x[2].As(mm, nn), x[0].As(mm, kk), x[1].As(nn, kk), bounds)
			b.MatMulNN(x[3].As(mm, nn), []kernels.Term{{A: x[0].As(mm, kk), B: x[1].As(kk, nn), Groups: bounds}})
			b.MatMulTN(x[4].As(mm, nn), x[0].As(kk, mm), x[1].As(kk, nn))
		})
	})
}

// FuzzRows: kernels over rows of any shape and any values have the bits of
// package ref.
func FuzzRows(f *testing.F) {
	f.Add(uint8(3), uint16(33), uint64(1))
	f.Add(uint8(1), uint16(0), uint64(2))
	f.Add(uint8(9), uint16(1025), uint64(3))
	f.Fuzz(func(t *testing.T, rows uint8, cols uint16, seed uint64) {
		n, h := int(rows%12), int(cols%2100)
		ids := make([]int32, n)
		for i := range ids {
			ids[i] = int32(seed>>i%97) - 2
		}
		sizes := []int{n * h, n * h, n * h, n * h, n * h, h, h, n, n, n, n}
		check(t, seed, sizes, func(b kernels.Backend, x []kernels.Tensor) {
			m := func(i int) kernels.Tensor { return x[i].As(n, h) }
			b.RMSNorm(m(0), x[7], m(1), x[5], 1e-6)
			b.RMSNormGrad(m(2), x[6], m(3), m(1), x[7], x[5], m(4))
			b.SwiGLUGrad(m(3), m(4), m(0), m(1), m(2))
			b.SwiGLU(m(2), m(3), m(1))
			b.LogitsMax(x[8], x[9], m(1), ids, 1)
			b.LogitsExpSum(x[10], m(1), x[8], shard.Bounds(h, 4))
			b.CrossEntropy(x[7], m(1), x[10], x[8], x[9], ids, 1, 0.25)
			b.AdamW(m(0), m(2), m(3), m(4), kernels.AdamWParams{LR: 1e-3, Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, Decay: 0.1, C1: 0.3, C2: 0.2, Coef: 0.7})
		})
	})
}

// FuzzAttention: attention of any shape has the bits of package ref.
func FuzzAttention(f *testing.F) {
	f.Add(uint8(49), uint8(10), uint8(2), uint64(1))
	f.Add(uint8(1), uint8(64), uint8(1), uint64(2))
	f.Fuzz(func(t *testing.T, tokens, dim, groups uint8, seed uint64) {
		h := kernels.Heads{Seqs: 1, T: int(tokens % 120), Heads: 4, KVHeads: 1, Dim: int(dim % 70), KVGroups: 1 << (groups % 3), Scale: 0.3}
		q, kv := h.Heads*h.Dim, h.Dim
		sizes := []int{h.T * q, h.T * kv, h.T * kv, h.T * q, h.T * q, h.T * kv, h.T * kv, h.T * h.T * h.Heads, h.T * q}
		check(t, seed, sizes, func(b kernels.Backend, x []kernels.Tensor) {
			m := func(i, cols int) kernels.Tensor { return x[i].As(h.T, cols) }
			p := x[7].As(h.Heads*h.T, h.T)
			b.Attention(m(3, q), p, m(0, q), m(1, kv), m(2, kv), h)
			b.AttentionGrad(m(4, q), m(5, kv), m(6, kv), m(8, q), p, m(0, q), m(1, kv), m(2, kv), h)
		})
	})
}

// check runs calls over tensors of the given sizes, filled with every kind of
// float, on package ref and on each instruction set, and compares all memory.
func check(t *testing.T, seed uint64, sizes []int, calls func(b kernels.Backend, x []kernels.Tensor)) {
	t.Helper()
	run := func(b kernels.Backend) (x []kernels.Tensor) {
		r := rand.New(rand.NewPCG(seed, 5))
		for _, n := range sizes {
			buf, err := b.Alloc(n)
			if err != nil {
				t.Fatal(err)
			}
			v := make([]float32, n)
			for i := range v {
				v[i] = value(r, seed)
			}
			b.Write(kernels.Flat(buf), v)
			x = append(x, kernels.Flat(buf))
		}
		calls(b, x)
		return x
	}
	want := run(ref.New[float32]())
	for _, isa := range cpu.ISAs() {
		if err := difference(run(open(t, isa, 1)), want); err != nil {
			t.Errorf("%s: %v", isa, err)
		}
	}
}

// value is a number; some seeds mix in whatever 32 bits can be.
func value(r *rand.Rand, seed uint64) float32 {
	if seed%3 == 0 && r.IntN(40) == 0 {
		return math.Float32frombits(uint32(r.Uint64()))
	}
	return float32(r.NormFloat64())
}
