package num

import "math"

// ln 2 in two parts, the first of 40 bits, so that its multiples by exponents
// of float64 are exact.
const (
	ln2Hi      = 0x1.62e42fefa2p-1
	ln2Lo      = 0x1.9ef35793c7673p-41
	oneOverLn2 = 0x1.71547652b82fep+0
)

// Exp is e^x, with an error below 0.7 ulp for normal results and below 1.1
// ulp for subnormal ones; above 709.79 it is +Inf, below -745.2 it is 0. NaN stays
// NaN.
func Exp(x float64) float64 {
	switch {
	case x != x:
		return x
	case x > 709.79:
		return math.Inf(1)
	case x < -745.2:
		return 0
	}
	n := math.Floor(float64(x*oneOverLn2) + 0.5)
	r, e := twoSum(x-float64(n*ln2Hi), -float64(n*ln2Lo))
	// e^(r+e) = 1 + r + (e + r^2*q), with 1+r taken as a sum and its error.
	q := horner(r, 1./2, 1./6, 1./24, 1./120, 1./720, 1./5040, 1./40320, 1./362880, 1./3628800,
		1./39916800, 1./479001600, 1./6227020800, 1./87178291200)
	s, d := twoSum(1, r)
	return scale(s+(float64(float64(r*r)*q)+(d+e)), int(n))
}

// scale is x * 2^k for -1100 < k < 1100, in two exact steps but for a subnormal
// or infinite result.
func scale(x float64, k int) float64 {
	h := k >> 1
	return float64(float64(x*power2(h)) * power2(k-h))
}

// power2 is 2^k for exponents of normal float64 values.
func power2(k int) float64 { return math.Float64frombits(uint64(k+1023) << 52) }

// Log is the natural logarithm, with an error below 0.9 ulp. It is -Inf for
// zeros, NaN for negative values and for NaN, +Inf for +Inf.
func Log(x float64) float64 {
	switch {
	case x != x || x < 0:
		return math.NaN()
	case x == 0:
		return math.Inf(-1)
	case x > math.MaxFloat64:
		return x
	}
	k := 0
	if x < 0x1p-1022 {
		x, k = x*0x1p54, -54 // a subnormal becomes normal, exactly
	}
	// x = m * 2^k with m in about [sqrt(1/2), sqrt(2)).
	b := math.Float64bits(x)
	k += int(b>>52) - 1023
	m := math.Float64frombits(b&(1<<52-1) | 1023<<52)
	if m > 0x1.6a09e667f3bcdp0 {
		m, k = m/2, k+1
	}
	return logParts(m-1, float64(k))
}

// logParts is log(1+f) + n*log 2 for |f| < 0.42. With s = f/(2+f),
// log(1+f) = 2*atanh(s) = f - (f^2/2 - s*(f^2/2 + R)), where R is the series of
// 2*atanh(s)/s from s^2 on: f, which is exact, carries the value.
func logParts(f, n float64) float64 {
	s := f / (2 + f)
	z := float64(s * s)
	r := float64(z * horner(z, 2./3, 2./5, 2./7, 2./9, 2./11, 2./13, 2./15, 2./17, 2./19, 2./21, 2./23, 2./25))
	half := float64(0.5 * float64(f*f))
	tail := float64(s*(half+r)) + float64(n*ln2Lo)
	hi, lo := twoSum(float64(n*ln2Hi), f)
	return hi + (lo - (half - tail))
}

// PowInt is b^t by squaring, the bits of t from the lowest on; b^0 is 1 for
// every b, and a negative t gives 1/b^-t. Each squaring doubles the relative
// error, so it grows up to about |t|/2 ulp: it serves powers of b whose t-th
// power matters only while it is far from 0 (bias corrections).
func PowInt(b float64, t int) float64 {
	n := uint(t)
	if t < 0 {
		n = -n
	}
	p := 1.0
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			p = float64(p * b)
		}
		b = float64(b * b)
	}
	if t < 0 {
		return 1 / p
	}
	return p
}

// InvFreq is theta^(-2i/dim), the angle per position of the i-th pair of a
// head of dim elements (Su et al., arXiv 2104.09864, section 3.2.2), computed
// as Exp(-(Log(theta)*2i)/dim).
func InvFreq(theta float64, i, dim int) float64 {
	return Exp(-(float64(Log(theta)*float64(2*i)) / float64(dim)))
}
