package ref_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

var (
	inf     = float32(math.Inf(1))
	nan     = float32(math.NaN())
	minusZ  = float32(math.Copysign(0, -1))
	fromB   = math.Float32frombits
	special = []float32{
		0, minusZ, 1, -1, 0.5, inf, -inf, nan, fromB(0x7f800001), math.MaxFloat32, -math.MaxFloat32,
		math.SmallestNonzeroFloat32, -math.SmallestNonzeroFloat32, 0x1p-126, -0x1p-126, 0x1.fffffcp-127,
		0x1p-127, 0x1p-75, 0x1p-74, 0x1p127, 0x1.000002p0, 0x1.fffffep0, -0x1.fffffep-1, 0x1p24, 0x1.000002p-24,
	}
)

// exactFMA is a*b+c by arbitrary precision, rounded once.
func exactFMA(a, b, c float32) float32 {
	wide := float64(float64(a)*float64(b)) + float64(c)
	if wide == 0 || wide-wide != 0 { // exact zeros with their sign, infinities, NaN
		return float32(wide)
	}
	// An exact product has 48 bits from 2^-298 up, a sum at most 128+298+1.
	p := new(big.Float).SetPrec(48).SetFloat64(float64(a))
	p.Mul(p, new(big.Float).SetFloat64(float64(b)))
	s := new(big.Float).SetPrec(450).Add(p, new(big.Float).SetFloat64(float64(c)))
	r, _ := s.Float32()
	return r
}

func checkFMA(t *testing.T, a, b, c float32) {
	t.Helper()
	if got, want := ref.FMA32(a, b, c), exactFMA(a, b, c); kernels.Bits(got) != kernels.Bits(want) {
		t.Fatalf("FMA32(%x, %x, %x) = %x, want %x", a, b, c, got, want)
	}
}

func TestFMA32Specials(t *testing.T) {
	for _, a := range special {
		for _, b := range special {
			for _, c := range special {
				checkFMA(t, a, b, c)
			}
		}
	}
}

// pick is a random mantissa with an exponent field in [lo, hi).
func pick(r *rand.Rand, lo, hi int) float32 {
	return fromB(r.Uint32()&0x807fffff | uint32(lo+r.IntN(hi-lo))<<23)
}

// few is a random number with few significant bits.
func few(r *rand.Rand, lo, hi int) float32 {
	return fromB(math.Float32bits(pick(r, lo, hi)) &^ (1<<r.IntN(23) - 1))
}

// TestFMA32Random compares with arbitrary precision where the double rounding
// of float64 arithmetic goes wrong: ties that a far smaller product breaks,
// subnormal results, cancellation.
func TestFMA32Random(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	naive := 0
	families := []struct {
		name string
		next func() (a, b, c float32)
	}{
		{"any bits", func() (a, b, c float32) { return fromB(r.Uint32()), fromB(r.Uint32()), fromB(r.Uint32()) }},
		{"alike", func() (a, b, c float32) { return pick(r, 120, 130), pick(r, 120, 130), pick(r, 110, 140) }},
		{"few bits", func() (a, b, c float32) { return few(r, 115, 130), few(r, 115, 130), few(r, 105, 130) }},
		{"subnormal", func() (a, b, c float32) { return pick(r, 20, 100), pick(r, 20, 60), pick(r, 0, 3) }},
		{"at 2^-126", func() (a, b, c float32) { return few(r, 30, 70), few(r, 50, 70), few(r, 0, 4) }},
		{"cancellation", func() (a, b, c float32) { a, b = pick(r, 100, 140), pick(r, 100, 140); return a, b, -a * b }},
		{"tie", func() (a, b, c float32) { // half an ulp of c, give or take a little
			c = pick(r, 60, 190)
			half := math.Ldexp(1, int(math.Float32bits(c)>>23&255)-127-24)
			if r.IntN(2) == 0 {
				half = -half
			}
			e := math.Ldexp(1, -15-r.IntN(9))
			return float32(half * (1 + e)), float32(1 - e), c // half * (1 - e*e)
		}},
	}
	for _, family := range families {
		t.Run(family.name, func(t *testing.T) {
			for range 250_000 {
				a, b, c := family.next()
				checkFMA(t, a, b, c)
				if twice := float32(float64(float64(a)*float64(b)) + float64(c)); kernels.Bits(twice) != kernels.Bits(ref.FMA32(a, b, c)) {
					naive++
				}
			}
		})
	}
	if naive < 50_000 {
		t.Errorf("only %d cases need the repair of the double rounding: the families are too easy", naive)
	}
}
