package bound

import "math"

const (
	// unit is the relative error of one rounding to float32.
	unit = 0x1p-24
	// tiny covers the absolute error of a rounding in the subnormal range, which
	// is at most half of it.
	tiny = 0x1p-149
	// transcendental is the relative error of exp and log in an evaluation, 2 ulp.
	transcendental = 4 * unit
)

// value is an exact number and a bound on the distance of any evaluation.
type value struct{ x, e float64 }

// scalar is an argument that a kernel rounds to float32 once.
func scalar(x float64) value { return value{x, math.Abs(float64(float32(x)) - x)} }

// most is the largest magnitude of an evaluation.
func (a value) most() float64 { return math.Abs(a.x) + a.e }

// rounded adds the rounding of one operation to a result whose operands' errors
// are in. Beyond the range of float32 there is no bound.
func (a value) rounded() value {
	m := a.most()
	if !(m <= math.MaxFloat32) {
		return value{a.x, math.Inf(1)}
	}
	return value{a.x, a.e + float64(unit*m) + tiny}
}

// product is a*b before rounding: |a'b' - ab| <= |a|e_b + e_a|b| + e_a e_b.
func product(a, b value) value {
	e := float64(math.Abs(a.x)*b.e) + float64(a.e*math.Abs(b.x)) + float64(a.e*b.e)
	return value{float64(a.x * b.x), e}
}

func mul(a, b value) value { return product(a, b).rounded() }

func add(a, b value) value { return value{a.x + b.x, a.e + b.e}.rounded() }

func sub(a, b value) value { return add(a, b.neg()) }

func (a value) neg() value { return value{-a.x, a.e} }

// fma is a*b + c, whether it rounds once or twice.
func fma(a, b, c value) value { return add(mul(a, b), c) }

// over is a/n for an exact n.
func (a value) over(n int) value { return value{a.x / float64(n), a.e / float64(n)}.rounded() }

// gamma is n*u/(1-n*u): the relative error of a product of n factors 1+d or
// 1/(1+d) with |d| <= u.
func gamma(n int) float64 {
	nu := float64(float64(n) * unit)
	if nu >= 1 {
		return math.Inf(1)
	}
	return nu / (1 - nu)
}

// growth is an upper bound of exp(d)-1 for d >= 0: (2+d)/(2-d) - 1.
func growth(d float64) float64 {
	if !(d < 2) {
		return math.Inf(1)
	}
	return d / (1 - float64(0.5*d))
}

// sum is a sum of exact value x in any order: terms values of which the errors
// add up to e and the magnitudes, with their errors, to most. It has at most
// terms roundings on the way of each value; with a value to start from or with
// products that round by themselves that is one more, so callers count those.
func sum(x, e, most float64, terms int) value {
	if !(most <= math.MaxFloat32) {
		return value{x, math.Inf(1)}
	}
	return value{x, e + float64(gamma(terms)*most) + float64(tiny*float64(terms))}
}
