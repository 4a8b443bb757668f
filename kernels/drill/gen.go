package drill

import "math"

// hash is a counter-based generator: splitmix64's finalizer over seed and
// counter. The same arguments give the same value on every machine.
func hash(seed, i uint64) uint64 {
	x := seed + (i+1)*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// hashName mixes a name into a seed.
func hashName(seed uint64, name string) uint64 {
	for i := range len(name) {
		seed = hash(seed, uint64(name[i]))
	}
	return seed
}

// fill makes one element from 64 random bits.
type fill func(h uint64) float32

// mode is a named kind of values.
type mode struct {
	name string
	fill fill
}

// modes are the kinds of values that every kernel meets. The first is the one
// for shapes, where each order of a sum and each rounding must show.
func modes() []mode {
	return []mode{
		{"plain", plain}, {"zeros", zeros}, {"ties", ties}, {"tiny", tiny}, {"huge", huge}, {"nonfinite", nonfinite}, {"spread", spread}, {"vanishing", vanishing},
	}
}

// scaled is a value of random sign and 24 significant bits, of an exponent in
// [lo, lo+n).
func scaled(h uint64, lo, n int) float32 {
	e := lo + int(h>>40%uint64(n))
	return math.Float32frombits(uint32(h)&0x807fffff | uint32(e+127)<<23)
}

// pick chooses one of xs by bits that the other fills do not use.
func pick(h uint64, xs ...float32) float32 { return xs[h>>52%uint64(len(xs))] }

// negZero is -0; Go's literal -0.0 is +0.
func negZero() float32 { return math.Float32frombits(1 << 31) }

// inf is +Inf.
func inf() float32 { return float32(math.Inf(1)) }

// nan is a quiet NaN.
func nan() float32 { return float32(math.NaN()) }

// loadedNaN is a negative NaN that carries something.
func loadedNaN() float32 { return math.Float32frombits(0xffc00123) }

// plain: magnitudes from 1/8 to 4, all bits of the fraction in use, so that
// nearly every rounding loses something.
func plain(h uint64) float32 { return scaled(h, -3, 5) }

// zeros: zeros of both signs among small numbers whose sums cancel.
func zeros(h uint64) float32 { return pick(h, negZero(), negZero(), 0, 1, -1, 0.5, -0.5, negZero()) }

// ties: factors whose product, added to one of the other values, lies so close
// to the middle between two floats that rounding through float64 goes wrong.
func ties(h uint64) float32 {
	const above, below = 0x1p-12 + 0x1p-30, 0x1p-12 - 0x1p-30
	return pick(h, 1, 1+0x1p-23, above, below, -above, above, below, 1)
}

// tiny: subnormals, and numbers whose products are subnormal.
func tiny(h uint64) float32 {
	if h>>60 < 4 {
		return math.Float32frombits(uint32(h) & 0x807fffff)
	}
	return scaled(h, -76, 14)
}

// huge: sums and products overflow, in an order that matters.
func huge(h uint64) float32 { return scaled(h, 58, 70) }

// vanishing: numbers whose products round to zeros of either sign, so that the
// sign of a chain is that of its last product: one that is left out shows, and so
// does one by +0 that was added.
func vanishing(h uint64) float32 { return scaled(h, -100, 10) }

// spread: every exponent from subnormal on that leaves products finite.
func spread(h uint64) float32 {
	if h>>60 == 0 {
		return math.Float32frombits(uint32(h) & 0x807fffff)
	}
	return scaled(h, -126, 189)
}

// nonfinite: one element in 24 is NaN or infinite, one in 24 is at an end of
// the range.
func nonfinite(h uint64) float32 {
	switch h >> 44 % 24 {
	case 0:
		return pick(h, nan(), loadedNaN(), inf(), -inf())
	case 1:
		return pick(h, math.MaxFloat32, -math.MaxFloat32, math.SmallestNonzeroFloat32, negZero(), 0x1p-126)
	}
	return plain(h)
}

// probability: [0, 1), with zeros.
func probability(h uint64) float32 {
	if h>>56 < 16 {
		return 0
	}
	return float32(h&0xffffff) * 0x1p-24
}

// positive: magnitudes of plain.
func positive(h uint64) float32 { return float32(math.Abs(float64(plain(h)))) }

// exponents: arguments over the whole range of exp, its ends and beyond, and
// about its ends more of them.
func exponents(h uint64) float32 {
	if h>>56 >= 192 {
		return pick(h, 88, 88.5, -87, -88, -103.5, -104) + float32(float32(h&0xffffff)*0x1p-24)
	}
	if h>>56 < 48 {
		return pick(h, 0x1.62e42ep6, 0x1.62e430p6, -104, -103.99999, -87.5, -103.2, 0, negZero(), inf(), -inf(), nan(), 1e30, -1e30)
	}
	return (float32(float32(h&0xffffff)*0x1p-24) - 0.55) * 210
}

// dirt is what an output holds before the call: it must not enter the result,
// not even times zero.
func dirt(h uint64) float32 {
	if h>>60 < 4 {
		return pick(h, nan(), inf(), -inf())
	}
	return plain(h) * 1e6
}

// guard is what lies around and between operands: finite and never the same
// twice in a row, so that any write shows.
func guard(h uint64) float32 { return scaled(h, 20, 3) }
