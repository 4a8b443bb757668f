package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockstep-ml/lockstep/benchmarks/turns"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/cpu"
)

// comparison is one case: what we run, and what the peer is asked for or, with
// bytes, a copy that moves as many.
type comparison struct {
	name    string
	request string
	flops   float64
	bytes   float64
	make    func(m *maker) func()
}

// maker allocates the operands of a case.
type maker struct {
	*cpu.Backend
	err  error
	bufs []kernels.Buffer
}

// tensor is filled with values of both signs.
func (m *maker) tensor(rows, cols int) kernels.Tensor {
	buf, err := m.Alloc(rows * cols)
	if err != nil {
		m.err = err
		return kernels.Tensor{}
	}
	m.bufs = append(m.bufs, buf)
	x := make([]float32, rows*cols)
	for i := range x {
		x[i] = float32(float32(i%251)/256) - 0.5
	}
	m.Write(kernels.Flat(buf), x)
	return kernels.Flat(buf).As(rows, cols)
}

// measure prints the row of a case.
func (c *comparison) measure(b *cpu.Backend, p *turns.Peer, threads, rounds int) error {
	m := &maker{Backend: b}
	ours := c.make(m)
	if m.err != nil {
		return m.err
	}
	defer func() {
		for _, buf := range m.bufs {
			b.Free(buf)
		}
	}()
	theirs := func(reps int) (float64, error) { return p.Ask(c.request, reps) }
	if p == nil {
		theirs = copies(m, c.bytes)
	}
	const target = 10e6 // ns
	reps := max(1, int(target/clock(ours, 1)))
	reps = max(1, int(target/clock(ours, reps)))
	first, err := theirs(1)
	if err != nil {
		return err
	}
	peerReps := max(1, int(target/first))
	var a, z, ratio []float64
	for i := range rounds {
		var x, y float64
		for side := range 2 {
			time.Sleep(3 * time.Millisecond) // idle threads of either go to sleep
			if (i+side)%2 == 0 {
				ours() // warm
				x = clock(ours, reps)
				continue
			}
			if _, err := theirs(1); err != nil {
				return err
			}
			if y, err = theirs(peerReps); err != nil {
				return err
			}
		}
		a, z, ratio = append(a, x), append(z, y), append(ratio, y/x)
	}
	rate := func(ns float64) string {
		if c.flops > 0 {
			return fmt.Sprintf("%.1f GF/s", c.flops/ns)
		}
		if c.bytes > 0 {
			return fmt.Sprintf("%.1f GB/s", c.bytes/ns)
		}
		return "-"
	}
	fmt.Printf("%-34s %7d %12.1f %12.1f %10s %10s %7.2f %7.2f\n", c.name, threads, median(a)/1e3, median(z)/1e3,
		rate(median(a)), rate(median(z)), median(ratio), slices.Min(z)/slices.Min(a))
	return nil
}

// clock is nanoseconds per call.
func clock(f func(), reps int) float64 {
	start := time.Now()
	for range reps {
		f()
	}
	return max(float64(time.Since(start).Nanoseconds())/float64(reps), 1)
}

// copies times the faster of memmove and streaming stores, reading half of the
// bytes and writing half.
func copies(m *maker, bytes float64) func(int) (float64, error) {
	n := int(bytes / 8)
	dst, src := m.tensor(1, n), m.tensor(1, n)
	return func(reps int) (float64, error) {
		return min(clock(func() { m.Copy(dst, src) }, reps), clock(func() { m.Scale(dst, src, 1) }, reps)), m.err
	}
}

// products are the matrix products: squares, and those of models of 50 and 350
// million parameters on 512 tokens; groups as in training, where there are any.
func products() []comparison {
	var out []comparison
	for _, n := range []int{512, 1024, 2048} {
		out = append(out, product("nn", n, n, n, 1), product("nt", n, n, n, 1), product("tn", n, n, n, 1))
	}
	const t = 512
	for _, s := range []struct{ h, i, v int }{{512, 2048, 8192}, {1024, 4096, 8192}} {
		out = append(out,
			product("nt", t, s.h, s.h, 1), product("nt", t, s.h, s.h, 4), product("nt", t, s.i, s.h, 1), product("nt", t, s.h, s.i, 4),
			product("nn", t, s.h, s.i, 4), product("nn", t, s.i, s.h, 1), product("tn", s.i, s.h, t, 1), product("tn", s.h, s.i, t, 1),
			product("nt", t, s.v, s.h, 1), product("tn", s.v, s.h, t, 1))
	}
	return out
}

func product(layout string, m, n, k, groups int) comparison {
	c := comparison{
		name:    fmt.Sprintf("%s %dx%dx%d", layout, m, n, k),
		request: fmt.Sprintf("%s %d %d %d", layout, m, n, k),
		flops:   2 * float64(m) * float64(n) * float64(k),
	}
	var bounds []int
	if groups > 1 {
		c.name += fmt.Sprintf(" G%d", groups)
		bounds = shard.Bounds(k, groups)
	}
	c.make = func(mk *maker) func() {
		x := mk.tensor(m, n)
		switch layout {
		case "nt":
			a, b := mk.tensor(m, k), mk.tensor(n, k)
			return func() { mk.MatMulNT(x, a, b, bounds) }
		case "nn":
			terms := []kernels.Term{{A: mk.tensor(m, k), B: mk.tensor(k, n), Groups: bounds}}
			return func() { mk.MatMulNN(x, terms) }
		}
		a, b := mk.tensor(k, m), mk.tensor(k, n)
		return func() { mk.MatMulTN(x, a, b) }
	}
	return c
}

// adamW are the scalars of a step in the middle of a run.
func adamW() kernels.AdamWParams {
	return kernels.AdamWParams{LR: 1e-3, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, Decay: 0.1, C1: 0.5, C2: 0.5, Coef: 1}
}

// streams are memory-bound kernels beyond the caches.
func streams() []comparison {
	const n, h = 16384, 1024
	array := func(k float64) float64 { return k * 4 * n * h }
	return []comparison{
		{name: "AdamW", bytes: array(7), make: func(m *maker) func() {
			w, a, v, g := m.tensor(1, n*h), m.tensor(1, n*h), m.tensor(1, n*h), m.tensor(1, n*h)
			m.Fill(v, 0.1)
			return func() { m.AdamW(w, a, v, g, adamW()) }
		}},
		{name: "RMSNorm", bytes: array(2), make: func(m *maker) func() {
			y, r, x, w := m.tensor(n, h), m.tensor(1, n), m.tensor(n, h), m.tensor(1, h)
			return func() { m.RMSNorm(y, r, x, w, 1e-5) }
		}},
		{name: "RMSNormGrad", bytes: array(3), make: func(m *maker) func() {
			dx, dw, dy, x, r, w := m.tensor(n, h), m.tensor(1, h), m.tensor(n, h), m.tensor(n, h), m.tensor(1, n), m.tensor(1, h)
			return func() { m.RMSNormGrad(dx, dw, dy, x, r, w, kernels.Tensor{}) }
		}},
		{name: "SwiGLU", bytes: array(3), make: func(m *maker) func() {
			y, z, u := m.tensor(n, h), m.tensor(n, h), m.tensor(n, h)
			return func() { m.SwiGLU(y, z, u) }
		}},
		{name: "SwiGLUGrad", bytes: array(5), make: func(m *maker) func() {
			dz, du, dh, z, u := m.tensor(n, h), m.tensor(n, h), m.tensor(n, h), m.tensor(n, h), m.tensor(n, h)
			return func() { m.SwiGLUGrad(dz, du, dh, z, u) }
		}},
		{name: "softmax (max, exp and sum, divide)", bytes: array(5), make: func(m *maker) func() { return loss(m, n, h, true) }},
		{name: "exp and sum", bytes: array(2), make: func(m *maker) func() { return loss(m, n, h, false) }},
		{name: "sum of squares", bytes: array(1), make: func(m *maker) func() {
			x, acc := m.tensor(n, h), new(kernels.SquareSum)
			return func() { m.SumSquares(acc, x) }
		}},
		{name: "hash", bytes: array(1), make: func(m *maker) func() {
			x, d := m.tensor(n, h), new(kernels.Digest)
			return func() { m.Hash(d, x, kernels.Place{}) }
		}},
		{name: "Reduce of 4", bytes: array(5), make: func(m *maker) func() {
			x := m.tensor(n, h)
			src := []kernels.Tensor{m.tensor(n, h), m.tensor(n, h), m.tensor(n, h), m.tensor(n, h)}
			dst := []kernels.Tensor{x}
			return func() { m.Reduce(dst, src, kernels.Sum) }
		}},
	}
}

// loss is cross-entropy and its gradient, or only exponentials and their sums.
func loss(m *maker, n, v int, all bool) func() {
	z, top, target, sum, nll := m.tensor(n, v), m.tensor(1, n), m.tensor(1, n), m.tensor(1, n), m.tensor(1, n)
	ids := make([]int32, n)
	if !all {
		return func() { m.LogitsExpSum(sum, z, top, nil) }
	}
	return func() {
		m.LogitsMax(top, target, z, ids, 0)
		m.LogitsExpSum(sum, z, top, nil)
		m.CrossEntropy(nll, z, sum, top, target, ids, 0, 1)
	}
}

// blocks are the other kernels of a step, against PyTorch.
func blocks() []comparison {
	const t, h, i, v = 512, 512, 2048, 8192
	hs := kernels.Heads{Seqs: 1, T: t, Heads: 8, KVHeads: 4, Dim: 64, KVGroups: 1, Scale: 0.125}
	attention := func(m *maker) (forward, backward func()) {
		q, o, do, dq := m.tensor(t, 512), m.tensor(t, 512), m.tensor(t, 512), m.tensor(t, 512)
		k, w, dk, dv := m.tensor(t, 256), m.tensor(t, 256), m.tensor(t, 256), m.tensor(t, 256)
		p := m.tensor(t*8, t)
		return func() { m.Attention(o, p, q, k, w, hs) }, func() { m.AttentionGrad(dq, dk, dv, do, p, q, k, w, hs) }
	}
	return []comparison{
		{name: "attention", request: "attention 512 8 4 64", make: func(m *maker) func() {
			f, _ := attention(m)
			return f
		}},
		{name: "attention and gradient", request: "attentiongrad 512 8 4 64", make: func(m *maker) func() {
			f, g := attention(m)
			return func() {
				f()
				g()
			}
		}},
		{name: "RMSNorm", request: "rmsnorm 512 512", make: func(m *maker) func() {
			y, r, x, w := m.tensor(t, h), m.tensor(1, t), m.tensor(t, h), m.tensor(1, h)
			return func() { m.RMSNorm(y, r, x, w, 1e-5) }
		}},
		{name: "SwiGLU", request: "swiglu 512 2048", make: func(m *maker) func() {
			y, z, u := m.tensor(t, i), m.tensor(t, i), m.tensor(t, i)
			return func() { m.SwiGLU(y, z, u) }
		}},
		{name: "cross-entropy and gradient", request: "crossentropy 512 8192", make: func(m *maker) func() { return loss(m, t, v, true) }},
		{name: "AdamW", request: "adamw 16777216", make: func(m *maker) func() {
			w, a, b, g := m.tensor(1, 1<<24), m.tensor(1, 1<<24), m.tensor(1, 1<<24), m.tensor(1, 1<<24)
			m.Fill(b, 0.1)
			return func() { m.AdamW(w, a, b, g, adamW()) }
		}},
	}
}
