package kernels

import (
	"math"
	"math/bits"
)

// squareUnit is the exponent of the unit of a SquareSum: the square of the
// smallest subnormal float32 is 2^-298.
const squareUnit = -298

// squareDigits is the number of 32-bit digits of a SquareSum: 2^64 squares of
// the largest float32 stay below 2^(320+298).
const squareDigits = 20

// SquareSum is an exact sum of squares of float32 values, as digits base 2^32
// in units of 2^-298, each below 2^32 after a kernel, followed by the numbers
// of infinite and of NaN elements: 176 bytes that an integer all-reduce (sum)
// over up to 2^32 ranks adds without a carry.
type SquareSum [squareDigits + 2]uint64

// The places of the counts in a SquareSum.
const (
	SquareInf = squareDigits
	SquareNaN = squareDigits + 1
)

// AddScaled adds (hi*2^64 + lo) * 2^(shift-298), then normalises.
func (s *SquareSum) AddScaled(hi, lo uint64, shift int) {
	k := uint(shift) % 32
	w0 := lo << k
	w1 := hi<<k | lo>>1>>(63-k)
	w2 := hi >> 1 >> (63 - k)
	i, carry := shift/32, uint64(0)
	for _, d := range [6]uint64{w0 & math.MaxUint32, w0 >> 32, w1 & math.MaxUint32, w1 >> 32, w2 & math.MaxUint32, w2 >> 32} {
		if i >= squareDigits {
			return // a sum of 2^64 squares never gets here
		}
		carry += s[i] + d
		s[i] = carry & math.MaxUint32
		carry >>= 32
		i++
	}
	for ; carry != 0 && i < squareDigits; i++ {
		carry += s[i]
		s[i] = carry & math.MaxUint32
		carry >>= 32
	}
}

// Add adds o digit by digit, as an integer all-reduce does.
func (s *SquareSum) Add(o *SquareSum) {
	for i, d := range o {
		s[i] += d
	}
}

// Sum is the exact sum rounded once to float64 (nearest even); any NaN gives
// NaN, else any infinity +Inf.
func (s *SquareSum) Sum() float64 {
	if s[SquareNaN] > 0 {
		return math.NaN()
	}
	if s[SquareInf] > 0 {
		return math.Inf(1)
	}
	var w [squareDigits/2 + 1]uint64 // 64-bit words
	carry := uint64(0)
	for i := range squareDigits {
		lo, c := bits.Add64(s[i], carry, 0)
		carry = lo>>32 | c<<32
		w[i/2] |= (lo & math.MaxUint32) << (32 * (i % 2))
	}
	w[squareDigits/2] = carry
	top := len(w) - 1
	for top >= 0 && w[top] == 0 {
		top--
	}
	if top < 0 {
		return 0
	}
	lz := uint(bits.LeadingZeros64(w[top]))
	head, sticky := w[top]<<lz, uint64(0)
	if top > 0 {
		head |= w[top-1] >> 1 >> (63 - lz)
		sticky = w[top-1] << lz
		for _, x := range w[:top-1] {
			sticky |= x
		}
	}
	if sticky != 0 {
		head |= 1 // round to odd at 64 bits, so that the conversion rounds once
	}
	return ldexp(float64(head), 64*top-int(lz)+squareUnit)
}

// ldexp is x * 2^e for results in float64's normal range.
func ldexp(x float64, e int) float64 {
	for e > 1000 {
		x, e = x*0x1p1000, e-1000
	}
	for e < -1000 {
		x, e = x*0x1p-1000, e+1000
	}
	return x * math.Float64frombits(uint64(e+1023)<<52)
}
