package sums_test

import (
	"math"
	"math/big"

	. "github.com/onsi/ginkgo/v2"
	"pgregory.net/rapid"

	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
	"github.com/lockstep-ml/lockstep/property/gen"
)

// float32s draws any float32, with a bias to those where rounding is delicate:
// few mantissa bits, subnormals, the ends of the range.
func float32s() *rapid.Generator[float32] {
	words := rapid.OneOf(
		rapid.Uint32(),
		rapid.Map(rapid.Uint32(), func(u uint32) uint32 { return u &^ (1<<12 - 1) }), // products of these are often ties
		rapid.Map(rapid.Uint32(), func(u uint32) uint32 { return u & (1<<31 | 1<<25 - 1) }),
		rapid.Map(rapid.Uint32(), func(u uint32) uint32 { return u&(1<<31|1<<23-1) | (64+u>>24&127)<<23 }),
		rapid.SampledFrom([]uint32{0, 1 << 31, 1, 1<<23 - 1, 1 << 23, 0x7f7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0x3f800000, 0x3f800001}),
	)
	return rapid.Map(words, math.Float32frombits)
}

// nearTie draws a sum that all but lies halfway between two floats: the product
// is half a unit of c's last place, times (1 + i*2^-23)(1 + j*2^-23). Its last
// bits are beyond a float64 sum, which then looks like a tie.
func nearTie(t *rapid.T) (a, b, c float32) {
	c = math.Float32frombits(rapid.Uint32Range(0, 250<<23).Draw(t, "c"))
	half := max(int(math.Float32bits(c)>>23), 1) - 151
	scaled := func(name string, e int) float32 {
		x := math.Float32bits(1) + uint32(rapid.IntRange(-3, 3).Draw(t, name))
		return math.Float32frombits(x + uint32(e)<<23)
	}
	a, b = scaled("i", half/2), scaled("j", half-half/2)
	if rapid.Bool().Draw(t, "negative") {
		a = -a
	}
	return a, b, c
}

// exactFMA is a*b + c in exact arithmetic, rounded once.
func exactFMA(a, b, c float32) float32 {
	x, y, z := float64(a), float64(b), float64(c)
	if wide := float64(x*y) + z; math.IsNaN(wide) || math.IsInf(wide, 0) || x*y == 0 && z == 0 {
		return float32(wide) // a matter of signs, not of rounding
	}
	exact := func(x float64) *big.Float { return new(big.Float).SetPrec(2000).SetFloat64(x) }
	p := exact(0).Mul(exact(x), exact(y))
	r, _ := p.Add(p, exact(z)).Float32()
	return r
}

var _ = Describe("Exact arithmetic", Label("C-DDP-001", "C-DET-001"), func() {
	It("fma rounds the exact result once", func() {
		gen.Check("fma", func(t *rapid.T) {
			a, b := float32s().Draw(t, "a"), float32s().Draw(t, "b")
			c := float32s().Draw(t, "c")
			if rapid.Bool().Draw(t, "near the product") {
				// Within a few steps of -a*b, where what is left is far below both.
				near := math.Float32bits(-(a * b)) + uint32(rapid.IntRange(-3, 3).Draw(t, "steps"))
				c = math.Float32frombits(near)
			}
			if rapid.Bool().Draw(t, "near a tie") {
				a, b, c = nearTie(t)
			}
			if got, want := ref.FMA32(a, b, c), exactFMA(a, b, c); kernels.Bits(got) != kernels.Bits(want) {
				t.Fatalf("fma(%x, %x, %x) = %x (%08x), want %x (%08x)", a, b, c, got, kernels.Bits(got), want, kernels.Bits(want))
			}
		})
	})

	It("a sum of squares is exact, however it is split", func() {
		be := ref.New[float32]()
		gen.Check("squares", func(t *rapid.T) {
			x := rapid.SliceOfN(float32s(), 0, 40).Draw(t, "x")
			all := tensorOf(be, 1, len(x), x)
			var want, got kernels.SquareSum
			be.SumSquares(&want, all)
			bounds := cuts(t, len(x), rapid.IntRange(1, 5).Draw(t, "parts"))
			for i := len(bounds) - 2; i >= 0; i-- { // the order is free too
				var part kernels.SquareSum
				be.SumSquares(&part, all.Range(bounds[i], bounds[i+1]))
				got.Add(&part)
			}
			if g, w := got.Sum(), want.Sum(); math.Float64bits(g) != math.Float64bits(w) && !(g != g && w != w) {
				t.Fatalf("the parts add up to %v, the whole to %v", g, w)
			}
			if w := exactSquares(x); math.Float64bits(got.Sum()) != math.Float64bits(w) && !(w != w && math.IsNaN(got.Sum())) {
				t.Fatalf("the sum is %v, want %v", got.Sum(), w)
			}
		})
	})

	It("digests of slices add up to the digest of the whole", func() {
		be := ref.New[float32]()
		gen.Check("digests", func(t *rapid.T) {
			s := drawSource(t)
			rows, cols := rapid.IntRange(1, 9).Draw(t, "rows"), rapid.IntRange(1, 9).Draw(t, "columns")
			x, id := s.tensor(be, rows, cols), rapid.Uint64().Draw(t, "id")
			var want, got kernels.Digest
			be.Hash(&want, x, kernels.Place{ID: id, RowStride: uint64(cols)})
			r, c := cuts(t, rows, 3), cuts(t, cols, 3)
			for i := 2; i >= 0; i-- {
				for j := range 3 {
					at := kernels.Place{ID: id, First: uint64(r[i]*cols + c[j]), RowStride: uint64(cols)}
					be.Hash(&got, x.RowRange(r[i], r[i+1]).ColRange(c[j], c[j+1]), at)
				}
			}
			if got != want {
				t.Fatalf("the parts add up to %v with %d not finite, the whole is %v with %d", got, got.NonFinite, want, want.NonFinite)
			}
		})
	})
})

// exactSquares is the sum of squares in exact arithmetic, rounded once.
func exactSquares(x []float32) float64 {
	sum, inf := new(big.Float).SetPrec(1000), false
	for _, v := range x {
		if v != v {
			return math.NaN()
		}
		if math.IsInf(float64(v), 0) {
			inf = true
			continue
		}
		f := new(big.Float).SetPrec(1000).SetFloat64(float64(v))
		sum.Add(sum, f.Mul(f, f))
	}
	if inf {
		return math.Inf(1)
	}
	r, _ := sum.Float64()
	return r
}
