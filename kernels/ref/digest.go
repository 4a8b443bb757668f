package ref

import (
	"math"

	"github.com/lockstep-ml/lockstep/kernels"
)

// canonicalNaN64 is how the float64 instance hashes and compares every NaN.
const canonicalNaN64 = 0x7ff8000000000000

// bitsOf is the bits under which x is compared and hashed.
func bitsOf[T Float](x T) uint64 {
	switch {
	case is32[T]():
		return uint64(kernels.Bits(float32(x)))
	case x != x:
		return canonicalNaN64
	}
	return math.Float64bits(float64(x))
}

// Hash implements kernels.Kernels; the float64 instance hashes 64 bits.
func (b *Backend[T]) Hash(d *kernels.Digest, x kernels.Tensor, at kernels.Place) {
	m := view[T]("hash", x)
	var sum kernels.Digest
	for i := range m.rows {
		index := at.First + uint64(i)*at.RowStride
		for _, v := range m.row(i) {
			p, q := kernels.Mix(at.ID, index, bitsOf(v))
			sum.A += p
			sum.B += q
			if v-v != 0 { // NaN or infinite
				sum.NonFinite++
			}
			index++
		}
	}
	d.Add(sum)
}

// HashChanged implements kernels.Kernels.
func (b *Backend[T]) HashChanged(d *kernels.Digest, x, old kernels.Tensor, at kernels.Place) (changed int) {
	const name = "hash changed"
	m, o := view[T](name, x), view[T](name, old)
	mustEqual(name, "rows of old", o.rows, m.rows)
	mustEqual(name, "columns of old", o.cols, m.cols)
	for i := range m.rows {
		was := o.row(i)
		for j, v := range m.row(i) {
			if bitsOf(v) == bitsOf(was[j]) {
				continue
			}
			p, q := kernels.Mix(at.ID, at.First+uint64(i)*at.RowStride+uint64(j), 1)
			d.Add(kernels.Digest{A: p, B: q})
			changed++
		}
	}
	return changed
}

// SumSquares implements kernels.Kernels. The float32 instance is exact. The
// float64 instance adds its own float64 sum, cut below the unit of a SquareSum;
// sums beyond the range of a SquareSum count as infinite.
func (b *Backend[T]) SumSquares(acc *kernels.SquareSum, x kernels.Tensor) {
	data := flat[T]("sum squares", x)
	if !is32[T]() {
		sumSquares64(acc, as64(data))
		return
	}
	for v := as32(data); len(v) > 0; {
		n := min(len(v), squareBlock)
		sumSquares32(acc, v[:n])
		v = v[n:]
	}
}

// squareBlock is how many squares of 48 bits a bin of 64 bits takes.
const squareBlock = 1 << 16

// sumSquares32 sorts squared 24-bit mantissas into one bin per exponent. Two
// sets of bins keep neighbours of equal exponent from waiting for each other.
func sumSquares32(acc *kernels.SquareSum, x []float32) {
	var even, odd [256]uint64
	i := 0
	for ; i+1 < len(x); i += 2 {
		e, m := split(x[i])
		even[e] += m * m
		e, m = split(x[i+1])
		odd[e] += m * m
	}
	if i < len(x) {
		e, m := split(x[i])
		even[e] += m * m
	}
	const special = 255
	if even[special]|odd[special] != 0 {
		countSpecial(acc, x)
	}
	for e := range special {
		if s := even[e] + odd[e]; s != 0 {
			// mantissa * 2^(max(e,1)-150), squared, in units of 2^-298
			acc.AddScaled(0, s, 2*max(e, 1)-2)
		}
	}
}

// split is the exponent field of x and its mantissa with the hidden bit; Inf
// has the mantissa 2^23.
func split(x float32) (e uint8, mantissa uint64) {
	u := math.Float32bits(x)
	e = uint8(u >> 23)
	mantissa = uint64(u & (1<<23 - 1))
	if e != 0 {
		mantissa |= 1 << 23
	}
	return e, mantissa
}

func countSpecial[T Float](acc *kernels.SquareSum, x []T) (found bool) {
	for _, v := range x {
		switch {
		case v != v:
			acc[kernels.SquareNaN]++
			found = true
		case v-v != 0:
			acc[kernels.SquareInf]++
			found = true
		}
	}
	return found
}

func sumSquares64(acc *kernels.SquareSum, x []float64) {
	if countSpecial(acc, x) {
		return
	}
	u := math.Float64bits(lanesDot(x, x))
	// the sum is mantissa * 2^(e-1075), hence shifted by e-1075+298
	e, m := int(u>>52), u&(1<<52-1)|1<<52
	switch shift := e - 777; {
	case shift > 500:
		acc[kernels.SquareInf]++
	case shift >= 0:
		acc.AddScaled(0, m, shift)
	case shift > -53:
		acc.AddScaled(0, m>>-shift, 0)
	}
}
