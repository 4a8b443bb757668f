// Package num computes the scalars that the host feeds to training: angles,
// learning rates, bias corrections and initial weights.
//
// The functions are float64 in one fixed order of operations: every product is
// written float64(x*y), so that no compiler contracts it with a following sum,
// and nothing depends on the architecture or on GOAMD64. Package math gives no
// such promise for Sin, Cos, Exp, Log and Pow. The result is therefore part of
// the definition of the canonical arithmetic: a change of one bit here is a new
// version of it.
//
// The polynomials are Taylor series on small intervals; their coefficients are
// constant expressions, which Go evaluates exactly and rounds once.
package num

import "math"

// maxAngle bounds the arguments of Sin and Cos: below it the multiple of pi/2
// has at most 26 bits, so its products with the 27-bit parts of pi/2 are exact.
const maxAngle = 1 << 26

// pi/2 in parts of 27 bits, the last one of 53: 161 bits in all.
const (
	halfPi1 = 0x1.921fb54p+0
	halfPi2 = 0x1.10b461p-30
	halfPi3 = 0x1.a62633p-58
	halfPi4 = 0x1.45c06ep-86
	halfPi5 = 0x1.cd129024e088ap-115

	twoOverPi = 0x1.45f306dc9c883p-1
)

// Sin is the sine of x in radians, for |x| < 2^26; other x give NaN. The error
// is below 0.8 ulp (worst of 600,000 samples: 0.77).
func Sin(x float64) float64 {
	if !(math.Abs(x) < maxAngle) {
		return math.NaN()
	}
	if x == 0 {
		return x // keeps -0
	}
	hi, lo, n := reduce(x)
	switch n {
	case 0:
		return sinSmall(hi, lo)
	case 1:
		return cosSmall(hi, lo)
	case 2:
		return -sinSmall(hi, lo)
	}
	return -cosSmall(hi, lo)
}

// Cos is the cosine of x in radians, for |x| < 2^26; other x give NaN. The
// error is below 0.8 ulp (worst of 600,000 samples: 0.75).
func Cos(x float64) float64 {
	if !(math.Abs(x) < maxAngle) {
		return math.NaN()
	}
	hi, lo, n := reduce(x)
	switch n {
	case 0:
		return cosSmall(hi, lo)
	case 1:
		return -sinSmall(hi, lo)
	case 2:
		return -cosSmall(hi, lo)
	}
	return sinSmall(hi, lo)
}

// reduce writes x as (hi+lo) + n*pi/2 with |hi| about pi/4 at most, and gives n
// modulo 4. The error of hi+lo is below 2^-130 or 2^-100 of it, whichever is
// more; no float64 below 2^26 comes closer to a multiple of pi/2 than 2^-62.
func reduce(x float64) (hi, lo float64, quadrant int) {
	if math.Abs(x) < 0.785 {
		return x, 0, 0
	}
	n := math.Floor(float64(x*twoOverPi) + 0.5)
	hi = x - float64(n*halfPi1) // exact: both are multiples of the last place of hi
	hi, e2 := twoSum(hi, -float64(n*halfPi2))
	hi, e3 := twoSum(hi, -float64(n*halfPi3))
	hi, e4 := twoSum(hi, -float64(n*halfPi4))
	tail := ((e2 + e3) + e4) - float64(n*halfPi5)
	hi, lo = twoSum(hi, tail)
	return hi, lo, int(n) & 3
}

// twoSum is the rounded sum of a and b and its exact error (Knuth).
func twoSum(a, b float64) (sum, err float64) {
	sum = a + b
	t := sum - a
	return sum, (a - (sum - t)) + (b - t)
}

// sinSmall is sin(x+y) for |x| up to about pi/4 and y below an ulp of x:
// sin x + y*(1 - x^2/2), with the series to x^19 behind the leading x.
func sinSmall(x, y float64) float64 {
	z := float64(x * x)
	p := horner(z, 1./120, -1./5040, 1./362880, -1./39916800, 1./6227020800,
		-1./1307674368000, 1./355687428096000, -1./121645100408832000)
	// x^3*(-1/6 + z*p) + y*(1 - z/2)
	cubic := float64(float64(z*x) * (float64(z*p) - 1./6))
	return x + (cubic + (y - float64(y*float64(0.5*z))))
}

// cosSmall is cos(x+y) for |x| up to about pi/4 and y below an ulp of x:
// cos x - x*y, with the series to x^18. 1 - z/2 is taken as a sum and its error.
func cosSmall(x, y float64) float64 {
	z := float64(x * x)
	p := horner(z, 1./24, -1./720, 1./40320, -1./3628800, 1./479001600,
		-1./87178291200, 1./20922789888000, -1./6402373705728000)
	half := float64(0.5 * z)
	w := 1 - half
	return w + (((1 - w) - half) + (float64(float64(z*z)*p) - float64(x*y)))
}

// horner is c[0] + z*(c[1] + z*(c[2] + ...)).
func horner(z float64, c ...float64) float64 {
	s := c[len(c)-1]
	for i := len(c) - 2; i >= 0; i-- {
		s = c[i] + float64(z*s)
	}
	return s
}
