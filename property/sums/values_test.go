package sums_test

import (
	"math"
	"slices"

	"pgregory.net/rapid"

	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// source makes the elements of a case from a seed: rapid draws the seed and the
// kind, so that a failing case stays small.
type source struct {
	seed  uint64
	kind  string
	drawn uint64
}

// drawSource draws a kind of elements: full mantissas of one magnitude, of many,
// or those with zeros, subnormals, huge values, infinities and NaN among them.
func drawSource(t *rapid.T) *source {
	return &source{seed: rapid.Uint64().Draw(t, "seed"), kind: rapid.SampledFrom([]string{"even", "mixed", "special"}).Draw(t, "kind")}
}

func (s *source) word() uint64 {
	s.drawn++
	h := (s.seed + s.drawn) * 0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

func (s *source) float() float32 {
	h := s.word()
	mantissa, sign := uint32(h)&(1<<23-1), uint32(h>>23&1)<<31
	switch pick := h >> 32 % 8; {
	case s.kind == "even":
		return math.Float32frombits(sign | 126<<23 | mantissa)
	case s.kind == "special" && pick == 0:
		special := []float32{0, float32(math.Copysign(0, -1)), math.SmallestNonzeroFloat32, -math.MaxFloat32, float32(math.Inf(1)), float32(math.NaN())}
		return special[h>>40%uint64(len(special))]
	}
	return math.Float32frombits(sign | uint32(117+h>>40%20)<<23 | mantissa)
}

// tensor is a new tensor of rows x cols elements.
func (s *source) tensor(be kernels.Backend, rows, cols int) kernels.Tensor {
	x := make([]float32, rows*cols)
	for i := range x {
		x[i] = s.float()
	}
	return tensorOf(be, rows, cols, x)
}

func tensorOf(be kernels.Backend, rows, cols int, x []float32) kernels.Tensor {
	b, err := be.Alloc(rows * cols)
	if err != nil {
		panic(err)
	}
	t := kernels.Flat(b)
	be.Write(t, x)
	return t.As(rows, cols)
}

func zeros(be kernels.Backend, rows, cols int) kernels.Tensor {
	return tensorOf(be, rows, cols, make([]float32, rows*cols))
}

// same fails the property where bits differ; all NaN are equal.
func same(t *rapid.T, what string, got, want kernels.Tensor) {
	g, w := ref.Data[float32](got), ref.Data[float32](want)
	if len(g) != len(w) {
		t.Fatalf("%s has %d elements, want %d", what, len(g), len(w))
	}
	for i := range w {
		if a, b := kernels.Bits(g[i]), kernels.Bits(w[i]); a != b {
			t.Fatalf("%s: element %d is %v (%08x), want %v (%08x)", what, i, g[i], a, w[i], b)
		}
	}
}

// cuts draws parts+1 ascending bounds from 0 to n; parts may be empty.
func cuts(t *rapid.T, n, parts int) []int {
	b := rapid.SliceOfN(rapid.IntRange(0, n), parts-1, parts-1).Draw(t, "cuts")
	slices.Sort(b)
	return append(append([]int{0}, b...), n)
}

// drawRanks draws a power of two of groups, and of ranks that share them.
func drawRanks(t *rapid.T) (groups, ranks int) {
	k := rapid.IntRange(0, 3).Draw(t, "log2 groups")
	return 1 << k, 1 << rapid.IntRange(0, k).Draw(t, "log2 ranks")
}

// slice is the part of a tensor that rank r of ranks computes with: the columns
// of its groups, as a view, and their bounds within it.
func slice(x kernels.Tensor, bounds []int, r, ranks int) (kernels.Tensor, []int) {
	own := shard.Part{Index: r, Size: ranks}.Of(len(bounds) - 1)
	local := slices.Clone(bounds[own.Lo : own.Hi+1])
	for i := range local {
		local[i] -= bounds[own.Lo]
	}
	return x.ColRange(bounds[own.Lo], bounds[own.Hi]), local
}
