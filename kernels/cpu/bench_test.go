package cpu_test

import (
	"fmt"
	"testing"

	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/cpu"
	"github.com/lockstep-ml/lockstep/kernels/kerneltest"
)

// BenchmarkKernels times every kernel for every instruction set, on one thread
// and on two.
func BenchmarkKernels(b *testing.B) {
	for _, isa := range cpu.ISAs() {
		if isa == cpu.Ref {
			continue // package ref has its own
		}
		for _, threads := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/threads%d", isa, threads), func(b *testing.B) {
				kerneltest.Bench(b, func(b *testing.B) kernels.Backend { return open(b, isa, threads) })
			})
		}
	}
}

// Shapes beyond the caches: 16 Mi elements, 64 MB, per tensor.
const (
	streamRows = 4096
	streamCols = 4096
)

// BenchmarkStream times the kernels that move memory at sizes beyond the
// caches, and copies to compare with: by memmove and by streaming stores. GB/s
// counts the bytes that each must move once.
func BenchmarkStream(b *testing.B) {
	for _, threads := range []int{1, 2} {
		k := open(b, "", threads)
		m := func(rows, cols int) kernels.Tensor {
			buf, err := k.Alloc(rows * cols)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { k.Free(buf) })
			t := kernels.Flat(buf).As(rows, cols)
			k.Fill(t, 0.25)
			return t
		}
		const n = streamRows * streamCols
		x := make([]kernels.Tensor, 5)
		for i := range x {
			x[i] = m(streamRows, streamCols)
		}
		row, w, dw := m(1, streamRows), m(1, streamCols), m(1, streamCols)
		row2, row3 := m(1, streamRows), m(1, streamRows)
		ids := make([]int32, streamRows)
		p := kernels.AdamWParams{LR: 1e-3, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, Decay: 0.1, C1: 0.5, C2: 0.5, Coef: 1}
		for _, c := range []struct {
			name   string
			arrays float64
			f      func()
		}{
			{"CopyMemmove", 2, func() { k.Copy(x[0], x[1]) }},
			{"CopyStream", 2, func() { k.Scale(x[0], x[1], 1) }},
			{"Residual", 3, func() { k.Residual(x[0], x[1], x[2], kernels.Tensor{}) }},
			{"RMSNorm", 2, func() { k.RMSNorm(x[0], row, x[1], w, 1e-5) }},
			{"RMSNormGrad", 3, func() { k.RMSNormGrad(x[0], dw, x[1], x[2], row, w, kernels.Tensor{}) }},
			{"SwiGLU", 3, func() { k.SwiGLU(x[0], x[1], x[2]) }},
			{"SwiGLUGrad", 5, func() { k.SwiGLUGrad(x[0], x[1], x[2], x[3], x[4]) }},
			{"AdamW", 7, func() { k.AdamW(x[0], x[1], x[2], x[3], p) }},
			{"LogitsMax", 1, func() { k.LogitsMax(row2, row3, x[1], ids, 0) }},
			{"LogitsExpSum", 2, func() { k.LogitsExpSum(row, x[3], row2, nil) }},
			{"CrossEntropy", 2, func() { k.CrossEntropy(row, x[3], row2, row3, row3, ids, 0, 1) }},
		} {
			b.Run(fmt.Sprintf("%s/threads%d", c.name, threads), func(b *testing.B) {
				for b.Loop() {
					c.f()
				}
				b.ReportMetric(4*n*c.arrays*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GB/s")
			})
		}
	}
}
