package cpu

import (
	"math"
	"unsafe"

	"github.com/lockstep-ml/lockstep/kernels"
)

// SumSquares implements kernels.Kernels.
func (b *Backend) SumSquares(acc *kernels.SquareSum, x kernels.Tensor) {
	if b.isa == nil {
		b.Backend.SumSquares(acc, x)
		return
	}
	kernels.CheckSumSquares(x)
	if x.Len() == 0 {
		return
	}
	c := b.newCall(squaresPart, noPath, pathSumSquares)
	c.x[0] = viewOf(x)
	c.x[0].rows, c.x[0].cols = 1, x.Len()
	for i, sums := 0, c.sums(allColumns); i < len(sums); i++ {
		addNormal(acc, &sums[i].squares)
	}
	c.drop()
}

// allColumns shares a call over the columns of its first view.
func allColumns(c *call) { c.parallelRows(1, c.x[0].cols) }

// squareBlock is how many squares are added in registers before the sums are
// taken out: at most 2^10 per lane of four.
const squareBlock = 1 << 12

func squaresPart(c *call, ws *workspace, part int) {
	sum := &c.partial[part].squares
	*sum = kernels.SquareSum{}
	lo, hi := c.columns(part)
	for ; lo < hi; lo += squareBlock {
		ws.addSquares(c.b.isa, sum, c.x[0].data[lo:min(lo+squareBlock, hi)])
	}
}

// squareArgs is the argument of isa.squares; the generator knows the offsets.
type squareArgs struct {
	n     int
	x     *float32
	start [3]float64
	sum   [3][8]float64
	left  [8]uint64
}

// Each level of the sum takes 42 bits below those of the level above: 52, less
// the 10 of the number of terms. The first starts that far above the largest
// square that it leaves none of its bits out.
const (
	levelBits = 42
	headroom  = 13 // a square is below 2^(2e+2), a lane adds 2^10, a start of 1.5*2^k holds sums below 2^(k-1)
)

// addSquares adds the squares of a block. What the levels cannot hold, more
// than 38 binary orders of magnitude or a number that is not finite, goes by
// bins.
func (ws *workspace) addSquares(s *isa, acc *kernels.SquareSum, x []float32) {
	whole := len(x) &^ 7
	if whole < len(x) {
		addBins(acc, x[whole:])
	}
	if x = x[:whole]; whole == 0 {
		return
	}
	top := int(math.Float32bits(ws.rowOf(s.largestBits, whole, &x[0])) >> 23)
	if top == 255 {
		addBins(acc, x)
		return
	}
	q := &ws.squares
	q.n, q.x = whole, &x[0]
	k := 2*(max(top, 1)-127) + headroom
	for i := range q.start {
		q.start[i] = math.Float64frombits(uint64(1023+k-i*levelBits)<<52 | 1<<51)
	}
	ws.marks.add(s.squares.number)
	q.call(s.squares.f)
	n, ok := q.totals(s.lanes / 2)
	if !ok {
		addBins(acc, x)
		return
	}
	for i, v := range n {
		shift := k - i*levelBits - 52 + 298
		if shift < 0 { // below the square of the least subnormal there is nothing
			v, shift = v>>-shift, 0
		}
		acc.AddScaled(0, uint64(v), shift)
	}
}

//go:noinline
func (q *squareArgs) call(f func(*byte)) { f((*byte)(unsafe.Pointer(q))) }

// totals is the sum of each level over lanes, in units of its last bit, none
// negative; ok is false if something was left.
func (q *squareArgs) totals(lanes int) (n [3]int64, ok bool) {
	for i := range n {
		for _, v := range q.sum[i][:lanes] {
			n[i] += int64(math.Float64bits(v) - math.Float64bits(q.start[i]))
		}
	}
	for i := len(n) - 1; i > 0; i-- {
		n[i-1] += n[i] >> levelBits
		n[i] &= 1<<levelBits - 1
	}
	union := uint64(0)
	for _, u := range q.left[:lanes] {
		union |= u
	}
	return n, union<<1 == 0
}

// addNormal adds digit by digit with carries, so that the digits stay below
// 2^32.
func addNormal(acc, sum *kernels.SquareSum) {
	carry := uint64(0)
	for i := range kernels.SquareInf {
		carry += acc[i] + sum[i]
		acc[i] = carry & math.MaxUint32
		carry >>= 32
	}
	acc[kernels.SquareInf] += sum[kernels.SquareInf]
	acc[kernels.SquareNaN] += sum[kernels.SquareNaN]
}

// addBins sorts squared mantissas of 24 bits into one bin per exponent, as
// package ref does. Four sets of bins keep neighbours of equal exponent from
// waiting for each other.
func addBins(acc *kernels.SquareSum, x []float32) {
	var bins [4][256]uint64
	i := 0
	for ; i+4 <= len(x); i += 4 {
		y := (*[4]float32)(x[i:])
		for j, v := range y {
			e, m := mantissa(v)
			bins[j][e] += m * m
		}
	}
	for ; i < len(x); i++ {
		e, m := mantissa(x[i])
		bins[0][e] += m * m
	}
	for e := range 255 {
		if s := bins[0][e] + bins[1][e] + bins[2][e] + bins[3][e]; s != 0 {
			acc.AddScaled(0, s, 2*max(e, 1)-2) // mantissa * 2^(max(e,1)-150), in units of 2^-298
		}
	}
	if bins[0][255]|bins[1][255]|bins[2][255]|bins[3][255] != 0 {
		countSpecial(acc, x)
	}
}

// mantissa is the exponent field of x and its mantissa with the hidden bit.
func mantissa(x float32) (e uint8, m uint64) {
	u := math.Float32bits(x)
	e = uint8(u >> 23)
	m = uint64(u & (1<<23 - 1))
	if e != 0 {
		m |= 1 << 23
	}
	return e, m
}

func countSpecial(acc *kernels.SquareSum, x []float32) {
	for _, v := range x {
		switch {
		case v != v:
			acc[kernels.SquareNaN]++
		case v-v != 0:
			acc[kernels.SquareInf]++
		}
	}
}
