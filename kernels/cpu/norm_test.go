package cpu

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// TestRMSNormGradThreads: threads that add to dw in turns give the bits of
// package ref, whatever dx and res lie on, and while other callers want the
// same threads.
func TestRMSNormGradThreads(t *testing.T) {
	plain := ref.New[float32]()
	for _, s := range detect() {
		for _, threads := range []int{2, 3, 6} {
			b, err := New(Options{ISA: s.name, Threads: threads})
			if err != nil {
				t.Fatal(err)
			}
			for _, shape := range [][2]int{{331, 257}, {1, 70000}, {70000, 1}, {1200, 96}, {67, 512}} {
				for _, on := range []string{"alone", "dx on dy", "dx on res", "no res"} {
					t.Run(fmt.Sprint(s.name, " ", threads, " ", shape, " ", on), func(t *testing.T) {
						t.Parallel()
						run := func(k kernels.Backend) [][]float32 { return normGradOf(t, k, shape[0], shape[1], on) }
						for i, want := range run(plain) {
							got := run(b)[i]
							if at := slices.IndexFunc(want, func(v float32) bool { return v != v }); at >= 0 {
								t.Fatalf("output %d: element %d is NaN", i, at)
							}
							if !slices.EqualFunc(got, want, func(x, y float32) bool { return kernels.Bits(x) == kernels.Bits(y) }) {
								t.Errorf("output %d differs", i)
							}
						}
					})
				}
			}
		}
	}
}

// normGradOf is dx and dw.
func normGradOf(t *testing.T, k kernels.Backend, rows, cols int, on string) [][]float32 {
	r := rand.New(rand.NewPCG(uint64(rows), uint64(cols)))
	made := func(rows, cols int) kernels.Tensor {
		buf, err := k.Alloc(rows * cols)
		if err != nil {
			t.Fatal(err)
		}
		x := make([]float32, rows*cols)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		k.Write(kernels.Flat(buf), x)
		return kernels.Flat(buf).As(rows, cols)
	}
	dw, dy, x, rstd, w, res, dx := made(1, cols), made(rows, cols), made(rows, cols), made(1, rows), made(1, cols), made(rows, cols), made(rows, cols)
	switch on {
	case "dx on dy":
		dx = dy
	case "dx on res":
		dx = res
	case "no res":
		res = kernels.Tensor{}
	}
	k.RMSNormGrad(dx, dw, dy, x, rstd, w, res)
	var out [][]float32
	for _, y := range []kernels.Tensor{dx, dw} {
		v := make([]float32, y.Len())
		if err := k.Read(v, y); err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	return out
}
