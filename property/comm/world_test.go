package comm_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"pgregory.net/rapid"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// rank is one rank of a world under test.
type rank struct {
	comm.Communicator
	be kernels.Backend
}

// run makes a world and runs f on all its ranks; it returns their errors.
func run(size int, algo names.Algorithm, f func(ctx context.Context, r rank) error) []error {
	bes := make([]kernels.Backend, size)
	for i := range bes {
		bes[i] = ref.New[float32]()
	}
	errs := make([]error, size)
	comms, err := comm.NewLocal(size, func(r int) kernels.Backend { return bes[r] }, comm.Options{Algorithm: algo, Deadline: 20 * time.Second})
	if err != nil {
		return []error{err}
	}
	var all sync.WaitGroup
	for i, c := range comms {
		all.Go(func() {
			defer c.Close()
			errs[i] = f(context.Background(), rank{c, bes[i]})
		})
	}
	all.Wait()
	return errs
}

// hold fails the property unless f succeeds on all ranks.
func hold(t *rapid.T, size int, algo names.Algorithm, f func(ctx context.Context, r rank) error) {
	for i, err := range run(size, algo, f) {
		if err != nil {
			t.Fatalf("rank %d: %v", i, err)
		}
	}
}

// tensor allocates a tensor with the given elements.
func (r rank) tensor(x []float32) kernels.Tensor {
	b, err := r.be.Alloc(len(x))
	if err != nil {
		panic(err)
	}
	t := kernels.Flat(b)
	r.be.Write(t, x)
	return t
}

// equal compares a tensor with the expected elements, bit for bit.
func (r rank) equal(what string, x kernels.Tensor, want []float32) error {
	got := make([]float32, x.Len())
	if err := r.be.Read(got, x); err != nil {
		return err
	}
	if len(got) != len(want) {
		return fmt.Errorf("%s has %d elements, want %d", what, len(got), len(want))
	}
	for i := range want {
		if g, w := kernels.Bits(got[i]), kernels.Bits(want[i]); g != w {
			return fmt.Errorf("%s: element %d is %v (%#08x), want %v (%#08x)", what, i, got[i], g, want[i], w)
		}
	}
	return nil
}

// input is element i of a rank's input number seed: mostly full mantissas of
// mixed magnitude, some of them special.
func input(seed uint64, rank, i int) float32 {
	h := (seed+1)*0x9e3779b97f4a7c15 ^ uint64(rank+1)*0xbf58476d1ce4e5b9 ^ uint64(i+1)*0x94d049bb133111eb
	h = (h ^ h>>31) * 0xd6e8feb86659fd93
	h ^= h >> 32
	special := []float32{0, math.Float32frombits(1 << 31), math.MaxFloat32, math.SmallestNonzeroFloat32, float32(math.Inf(1)), float32(math.NaN())}
	if h%16 == 0 {
		return special[h>>8%uint64(len(special))]
	}
	return math.Float32frombits(uint32(h>>32)&(1<<31|1<<23-1) | (125+uint32(h>>4%5))<<23)
}

// vector is a rank's whole input of n elements.
func vector(seed uint64, rank, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = input(seed, rank, i)
	}
	return x
}

// reduced is the canonical reduction of the inputs of the given ranks.
func reduced(seed uint64, ranks []int, n int, op kernels.Op) []float32 {
	out := make([]float32, n)
	for i := range out {
		x := make([]float32, len(ranks))
		for r, w := range ranks {
			x[r] = input(seed, w, i)
		}
		if op == kernels.Max {
			out[i] = float32(math.Inf(-1))
			for _, v := range x {
				if v > out[i] {
					out[i] = v
				}
			}
			continue
		}
		for d := 1; d < len(x); d *= 2 {
			for j := 0; j+d < len(x); j += 2 * d {
				x[j] += x[j+d]
			}
		}
		out[i] = x[0]
	}
	return out
}

// sizes draws the number of elements: small ones, and a few longer.
func sizes() *rapid.Generator[int] {
	return rapid.OneOf(rapid.IntRange(0, 20), rapid.IntRange(0, 300), rapid.SampledFrom([]int{1023, 1024, 1025}))
}

// cuts draws bounds that cut n elements into parts, some of them empty.
func cuts(t *rapid.T, n, parts int) []int {
	b := rapid.SliceOfN(rapid.IntRange(0, n), parts-1, parts-1).Draw(t, "cuts")
	slices.Sort(b)
	return append(append([]int{0}, b...), n)
}
