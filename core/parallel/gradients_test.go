package parallel

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/num"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// leaf is element j of worker i's gradient in a step: mixed magnitudes, so that
// no two orders of a sum agree, and some -0.
func leaf(step, i, j int) float32 {
	x := num.Normal(uint64(step), uint64(i), uint64(j))
	switch j % 7 {
	case 0:
		return float32(x * 1000)
	case 3:
		return float32(math.Copysign(0, -1))
	}
	return float32(x)
}

// tree is the definition, leaf by leaf: absent leaves are nil, and so is a sum
// of none.
func tree(x []*float32) *float32 {
	x = slices.Clone(x)
	for d := 1; d < len(x); d *= 2 {
		for i := 0; i+d < len(x); i += 2 * d {
			switch a, b := x[i], x[i+d]; {
			case b == nil:
			case a == nil:
				x[i] = b
			default:
				sum := *a + *b
				x[i] = &sum
			}
		}
	}
	return x[0]
}

// absences are which of n workers are present: everyone, nobody, one each, the
// last ones missing, and random ones.
func absences(n int) [][]bool {
	sets := []func(i int) bool{
		func(int) bool { return true }, func(int) bool { return false },
		func(i int) bool { return i == 0 }, func(i int) bool { return i == n-1 }, func(i int) bool { return i < (n+1)/2 },
	}
	for s := range 20 {
		sets = append(sets, func(i int) bool { return num.Uniform(uint64(s), uint64(n), uint64(i)) < 0.5 })
	}
	var out [][]bool
	for _, f := range sets {
		present := make([]bool, n)
		for i := range present {
			present[i] = f(i)
		}
		out = append(out, present)
	}
	return out
}

// One counter is used for step after step, as in training, each with other
// absences; elements are folded unit by unit, in any order of the units.
func TestCounterIsTheTree(t *testing.T) {
	const length = 23
	units := []shard.Range{{Lo: 9, Hi: 23}, {Lo: 9, Hi: 9}, {Lo: 0, Hi: 9}}
	for _, n := range []int{1, 2, 4, 8, 16} {
		c, err := NewCounter(&Meter{Backend: ref.New[float32]()}, names.MemGrads, length, n)
		if err != nil {
			t.Fatal(err)
		}
		for step, present := range absences(n) {
			leaves := make([][]*float32, length)
			for i := range n {
				c.Start(present[i])
				acc := ref.Data[float32](c.Acc())
				for j := range acc {
					if acc[j] != 0 || math.Signbit(float64(acc[j])) {
						t.Fatalf("worker %d of %d begins with %v at element %d", i, n, acc[j], j)
					}
					if leaves[j] = append(leaves[j], nil); present[i] {
						x := leaf(step, i, j)
						acc[j], leaves[j][i] = x, &x
					}
				}
				for _, r := range units {
					c.Fold(r, i)
				}
				c.End(i)
			}
			checkTree(t, fmt.Sprintf("%d workers, present %v", n, present), ref.Data[float32](c.Acc()), leaves)
		}
	}
}

// checkTree compares sums with the tree; a sum of nothing is -0.
func checkTree(t *testing.T, what string, got []float32, leaves [][]*float32) {
	t.Helper()
	for j, x := range leaves {
		want := float32(math.Copysign(0, -1))
		if s := tree(x); s != nil {
			want = *s
		}
		if kernels.Bits(got[j]) != kernels.Bits(want) {
			t.Fatalf("%s: element %d is %v (%08x), want %v (%08x)", what, j, got[j], kernels.Bits(got[j]), want, kernels.Bits(want))
		}
	}
}

// Ranks' partial sums, reduced over ranks, are the tree over all workers: the
// two placements of workers, by runs and by rounds, give the same bits.
func TestPlacementsGiveTheSameTree(t *testing.T) {
	const length, workers = 15, 16
	be := ref.New[float32]()
	for _, ranks := range []int{1, 2, 4, 8, 16} {
		for step, present := range absences(workers) {
			leaves := make([][]*float32, length)
			for j := range leaves {
				for i := range workers {
					leaves[j] = append(leaves[j], nil)
					if present[i] {
						x := leaf(step, i, j)
						leaves[j][i] = &x
					}
				}
			}
			for name, place := range map[string]func(rank, i int) int{
				"runs": func(rank, i int) int { return rank*workers/ranks + i }, "rounds": func(rank, i int) int { return i*ranks + rank },
			} {
				what := fmt.Sprintf("%d ranks by %s, present %v", ranks, name, present)
				checkTree(t, what, reduceOver(t, be, ranks, workers/ranks, leaves, place, name == "rounds"), leaves)
			}
		}
	}
}

// reduceOver sums by counters on the ranks and then over ranks, or, in rounds,
// over the ranks first; what is absent is sent as -0.
func reduceOver(t *testing.T, be *ref.Backend[float32], ranks, per int, leaves [][]*float32, place func(rank, i int) int, rounds bool) []float32 {
	t.Helper()
	counters := make([]*Counter, ranks)
	for r := range counters {
		var err error
		if counters[r], err = NewCounter(&Meter{Backend: be}, names.MemGrads, len(leaves), per); err != nil {
			t.Fatal(err)
		}
	}
	all := shard.Range{Hi: len(leaves)}
	sum := func() {
		x := make([]kernels.Tensor, ranks)
		for r, c := range counters {
			x[r] = c.Acc()
		}
		be.Reduce(x, x, kernels.Sum)
	}
	for i := range per {
		for r, c := range counters {
			w := place(r, i)
			there := leaves[0][w] != nil
			c.Start(there || rounds)
			for j, acc := 0, ref.Data[float32](c.Acc()); j < len(acc); j++ {
				switch {
				case there:
					acc[j] = *leaves[j][w]
				case rounds:
					acc[j] = float32(math.Copysign(0, -1))
				}
			}
		}
		if rounds {
			sum()
		}
		for _, c := range counters {
			c.Fold(all, i)
			c.End(i)
		}
	}
	if !rounds {
		sum()
	}
	return ref.Data[float32](counters[ranks-1].Acc())
}

func TestCounterHoldsLogBuffers(t *testing.T) {
	for n, want := range map[int]int{1: 1, 2: 2, 4: 3, 8: 4, 16: 5} {
		m := &Meter{Backend: ref.New[float32]()}
		c, err := NewCounter(m, names.MemGrads, 10, n)
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Buffers()) != want || m.Take()[1].Live != int64(want*40) {
			t.Errorf("%d workers: %d buffers, want %d", n, len(c.Buffers()), want)
		}
	}
	for _, n := range []int{0, 3, 6, -4} {
		if _, err := NewCounter(&Meter{Backend: ref.New[float32]()}, names.MemGrads, 1, n); err == nil || !strings.Contains(err.Error(), fmt.Sprint(n)) {
			t.Errorf("%d workers: %v", n, err)
		}
	}
}
