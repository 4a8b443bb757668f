package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// TestDigests: digests of elements and of changes are those of package ref
// around the ends of vectors and stretches, for rows that follow each other and
// such that do not, with and without what is not finite in one of the stretches.
func TestDigests(t *testing.T) {
	plain := ref.New[float32]()
	odd := []uint32{0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001, 0xffffffff, 0x7f7fffff, 1, 0x80000000}
	for _, s := range detect() {
		for _, threads := range []int{1, 2} {
			b, err := New(Options{ISA: s.name, Threads: threads})
			if err != nil {
				t.Fatal(err)
			}
			r := rand.New(rand.NewPCG(3, uint64(threads)))
			for _, cols := range []int{1, 15, 16, 17, 31, 64, 100, stretch - 1, stretch, 2*stretch + 17} {
				for _, gap := range []int{0, 3} { // between rows, in memory or in the tensor
					for _, strange := range []int{0, 1, 9} {
						const rows = 11
						x, old := digestOperand(t, b, r, rows, cols, gap), digestOperand(t, b, r, rows, cols, gap)
						for range strange {
							i := r.IntN(rows * (cols + gap))
							data(x)[i], data(old)[r.IntN(rows*(cols+gap))] = math.Float32frombits(odd[r.IntN(len(odd))]), math.Float32frombits(odd[r.IntN(len(odd))])
						}
						for i := range data(x) {
							if r.IntN(3) == 0 {
								data(old)[i] = data(x)[i]
							}
						}
						name := fmt.Sprintf("%s, %d threads, %dx%d, gap %d, %d strange", s.name, threads, rows, cols, gap, strange)
						for _, at := range []kernels.Place{{ID: 7, First: 5, RowStride: uint64(cols)}, {ID: 7, First: 1 << 40, RowStride: uint64(cols + 2)}} {
							var got, want kernels.Digest
							b.Hash(&got, x, at)
							if plain.Hash(&want, x, at); got != want {
								t.Fatalf("%s, %+v: digest %x, want %x", name, at, got, want)
							}
							if gap > 0 {
								continue // HashChanged takes dense tensors
							}
							n, m := b.HashChanged(&got, x, old, at), plain.HashChanged(&want, x, old, at)
							if got != want || n != m {
								t.Fatalf("%s, %+v: %d changed, %x; want %d, %x", name, at, n, got, m, want)
							}
						}
					}
				}
			}
		}
	}
}

// digestOperand has rows that lie gap elements apart.
func digestOperand(t *testing.T, b *Backend, r *rand.Rand, rows, cols, gap int) kernels.Tensor {
	t.Helper()
	buf, err := b.Alloc(rows * (cols + gap))
	if err != nil {
		t.Fatal(err)
	}
	x := kernels.Flat(buf)
	for i := range data(x) {
		data(x)[i] = float32(r.NormFloat64())
	}
	x.Rows, x.Cols, x.Stride = rows, cols, cols+gap
	return x
}

func data(x kernels.Tensor) []float32 { return ref.Data[float32](kernels.Flat(x.Buf)) }
