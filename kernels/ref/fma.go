package ref

import (
	"math"
	"unsafe"
)

// Float is an element type: float32 is the canonical arithmetic, float64 its
// oracle.
type Float interface{ float32 | float64 }

// FMA32 is a*b + c rounded once to float32: nearest even, subnormals kept,
// signs of zero, infinities and NaN as IEEE 754 has them. Any NaN may come out
// as any NaN; compare by kernels.Bits.
//
// The float64 product is exact (24+24 bits) and the float64 sum is not: where
// it lies halfway between two float32 values, or in their subnormal range, a
// second rounding could go wrong and the sum is first rounded to odd (Boldo and
// Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
func FMA32(a, b, c float32) float32 {
	s := wideSum(a, b, c)
	if roundsOnce(s) {
		return float32(s)
	}
	return repairedFMA(a, b, c)
}

// wideSum is a*b + c in float64: an exact product, then one rounding.
func wideSum(a, b, c float32) float64 {
	return float64(float64(a)*float64(b)) + float64(c)
}

// roundsOnce reports whether rounding s, a rounded float64 sum, to float32
// gives the rounding of the unrounded sum: s is no tie of two float32 values,
// and zero (always exact) or at least 2^-126. The subtraction wraps zero round
// to the largest value, so that one comparison serves both.
func roundsOnce(s float64) bool {
	const (
		belowHalf = 1<<29 - 1      // bits that float32 does not keep
		half      = 1 << 28        // of those, a tie
		normal    = 1023 - 126     // exponent field of 2^-126
		least     = normal<<53 - 1 // its bits without the sign, less one
	)
	u := math.Float64bits(s)
	return u&belowHalf != half && u<<1-1 >= least
}

// repairedFMA is FMA32 where the float64 sum may not be rounded again as it is:
// an inexact sum moves to the neighbour with an odd last bit.
//
//go:noinline
func repairedFMA(a, b, c float32) float32 {
	x, y := float64(float64(a)*float64(b)), float64(c)
	s := x + y
	t := s - x
	rest := (x - (s - t)) + (y - t) // Knuth's TwoSum: s + rest = x + y exactly
	u := math.Float64bits(s)
	if rest == 0 || rest != rest || u&1 == 1 {
		return float32(s) // exact, not finite, or odd already
	}
	if (rest > 0) == (s > 0) {
		u++
	} else {
		u--
	}
	return float32(math.Float64frombits(u))
}

// fma is a*b + c rounded once to T.
func fma[T Float](a, b, c T) T {
	if is32[T]() {
		return T(FMA32(float32(a), float32(b), float32(c)))
	}
	return T(math.FMA(float64(a), float64(b), float64(c)))
}

// is32 reports whether T is float32; the compiler folds it.
func is32[T Float]() bool {
	var x T
	return unsafe.Sizeof(x) == 4
}

// as32 is x as the []float32 that it is.
func as32[T Float](x []T) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

// as64 is x as the []float64 that it is.
func as64[T Float](x []T) []float64 {
	return unsafe.Slice((*float64)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

// root is the square root; through float64 it is correctly rounded for float32
// as well (53 >= 2*24+2).
func root[T Float](x T) T { return T(math.Sqrt(float64(x))) }
