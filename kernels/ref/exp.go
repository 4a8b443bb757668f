package ref

import "math"

// Exp32 is the canonical exponential: argument reduction by n = round(x*log2 e)
// in two steps (ln 2 as a part of 15 bits, so that n times it is exact, and a
// rest), a polynomial of degree 6 by Horner's rule with fma, and two
// multiplications by powers of two, so that subnormal results round once more
// and correctly. Arguments above 0x1.62e42ep6 give +Inf, below -104 +0; NaN
// stays NaN. At most 0.8657 ulp from the true value, measured over every
// float32.
func Exp32(x float32) float32 {
	switch {
	case x > 0x1.62e42ep6:
		return float32(math.Inf(1))
	case x < -104:
		return 0
	case x != x:
		return x
	}
	const shifter = 0x1.8p23 // adding it rounds to an integer
	n := FMA32(x, 0x1.715476p0, shifter) - shifter
	r := FMA32(n, -0x1.62e4p-1, x)
	r = FMA32(n, -0x1.7f7d1cp-20, r)
	p := FMA32(0x1.694p-10, r, 0x1.125edcp-7)
	p = FMA32(p, r, 0x1.555b5ap-5)
	p = FMA32(p, r, 0x1.55545p-3)
	p = FMA32(p, r, 0x1.fffff6p-2)
	p = FMA32(p, r, 1)
	p = FMA32(p, r, 1)
	k := int32(n)
	h := k >> 1
	return float32(p*pow2(h)) * pow2(k-h)
}

// pow2 is 2^k for -126 <= k <= 127.
func pow2(k int32) float32 { return math.Float32frombits(uint32(k+127) << 23) }

// Log32 is the canonical natural logarithm: x = 2^n*m with m in [2/3, 4/3),
// f = m-1 (exact), log(1+f) = f + f^2*p(f) with p of degree 9 by Horner's rule
// (minimax coefficients of this project, rounded to float32 and tuned on all
// m), and n*ln 2 in two parts. Zeros give -Inf, negative numbers NaN; +Inf and
// NaN stay. At most 0.8175 ulp from the true value, measured over every float32.
func Log32(x float32) float32 {
	n := float32(0)
	switch {
	case x != x || x > math.MaxFloat32:
		return x
	case x == 0:
		return float32(math.Inf(-1))
	case x < 0:
		return float32(math.NaN())
	case x < 0x1p-126:
		x *= 0x1p23
		n = -23
	}
	u := math.Float32bits(x)
	const twoThirds = 0x3f2aaaab
	e := (u - twoThirds) &^ (1<<23 - 1) // n as an exponent field
	n += float32(int32(e) >> 23)
	f := math.Float32frombits(u-e) - 1
	p := FMA32(0x1.ebd038p-4, f, -0x1.071124p-3)
	p = FMA32(p, f, 0x1.b87e4ep-4)
	p = FMA32(p, f, -0x1.f389fcp-4)
	p = FMA32(p, f, 0x1.24f48ep-3)
	p = FMA32(p, f, -0x1.559908p-3)
	p = FMA32(p, f, 0x1.99977ep-3)
	p = FMA32(p, f, -0x1.ffff12p-3)
	p = FMA32(p, f, 0x1.555556p-2)
	p = FMA32(p, f, -0.5)
	p = FMA32(p, float32(f*f), float32(n*-0x1.05c61p-29))
	return FMA32(n, 0x1.62e43p-1, f+p)
}

// exp is Exp32, or the exponential of package math for the oracle.
func exp[T Float](x T) T {
	if is32[T]() {
		return T(Exp32(float32(x)))
	}
	return T(math.Exp(float64(x)))
}

// log is Log32, or the logarithm of package math for the oracle.
func log[T Float](x T) T {
	if is32[T]() {
		return T(Log32(float32(x)))
	}
	return T(math.Log(float64(x)))
}
