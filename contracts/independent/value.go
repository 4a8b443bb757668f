package independent

import "math"

// unit is the rounding unit u of float32, with a margin for the float64
// arithmetic of the analysis itself, whose own errors are 2^-29 of it.
const unit = 0x1p-24 * (1 + 0x1p-12)

// tiny is more than what rounding loses in the subnormal range of float32.
const tiny = 0x1p-149

// ulps is what exp and log are off by at most, in parts of the result: 0.87
// units in the last place, each at most 2^-23 of it.
const ulps = 1.75 * unit

// value is a number and a bound on what a float32 evaluation may be off by.
type value struct{ v, e float64 }

func exact(x float64) value { return value{v: x} }

// host is a scalar that the host computes in float64 and rounds once.
func host(x float64) value { return value{x, math.Abs(x)*(unit+0x1p-50) + tiny} }

// rounded is a after one rounding; what exceeds float32 has no bound.
func (a value) rounded() value {
	m := math.Abs(a.v) + a.e
	if !(m <= math.MaxFloat32) {
		return value{a.v, math.Inf(1)}
	}
	return value{a.v, a.e + unit*m + tiny}
}

// times, plus, minus and over are the operations before rounding.
func (a value) times(b value) value {
	return value{a.v * b.v, math.Abs(a.v)*b.e + math.Abs(b.v)*a.e + a.e*b.e}
}
func (a value) plus(b value) value  { return value{a.v + b.v, a.e + b.e} }
func (a value) minus(b value) value { return value{a.v - b.v, a.e + b.e} }
func (a value) over(b value) value {
	low := math.Abs(b.v) - b.e
	if !(low > 0) {
		return value{a.v / b.v, math.Inf(1)}
	}
	q := a.v / b.v
	return value{q, (a.e + math.Abs(q)*b.e) / low}
}

// mul, add, sub and div round once; fma is a*b + c rounded once.
func (a value) mul(b value) value    { return a.times(b).rounded() }
func (a value) add(b value) value    { return a.plus(b).rounded() }
func (a value) sub(b value) value    { return a.minus(b).rounded() }
func (a value) div(b value) value    { return a.over(b).rounded() }
func (a value) fma(b, c value) value { return a.times(b).plus(c).rounded() }

// sqrt rounds once: |sqrt(a') - sqrt(a)| = |a' - a| / (sqrt(a') + sqrt(a)).
func (a value) sqrt() value {
	r := math.Sqrt(a.v)
	low := math.Sqrt(max(a.v-a.e, 0))
	if a.e == 0 {
		return exact(r).rounded()
	}
	return value{r, min(a.e/(r+low), math.Sqrt(a.e))}.rounded()
}

// gamma is Higham's gamma_n.
func gamma(n int) float64 {
	x := float64(n) * unit
	if x >= 0.5 {
		return math.Inf(1)
	}
	return x / (1 - x)
}

// lanes is how many roundings an element passes in a sum of n by 32 lanes that
// are folded in five halvings.
func lanes(n int) int { return (n+31)/32 + 5 }

// log2 is the depth of a tree over n.
func log2(n int) int {
	d := 0
	for 1<<d < n {
		d++
	}
	return d
}
