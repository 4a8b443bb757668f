package cpu

import (
	"bytes"
	"math"
	"unsafe"

	"github.com/lockstep-ml/lockstep/kernels"
)

// hashArgs is the argument of isa.hash: the digest of n elements from x on, of
// which the first mixes start. The generator knows the offsets.
type hashArgs struct {
	n     int
	x     *float32
	start uint64
	sum   kernels.Digest // result
}

// hashIndex is the multiplier of the index in kernels.Mix.
const hashIndex = 0x9e3779b97f4a7c15

// Hash implements kernels.Kernels.
func (b *Backend) Hash(d *kernels.Digest, x kernels.Tensor, at kernels.Place) {
	if b.isa == nil || b.isa.hash == nil {
		b.Backend.Hash(d, x, at)
		return
	}
	kernels.CheckHash(x)
	if x.Len() == 0 {
		return
	}
	c := b.newCall(hashPart)
	c.x[0], c.place, c.digest = viewOf(x), at, d
	c.parallelRows(x.Rows, x.Cols)
}

func hashPart(c *call, ws *workspace, part int) {
	var sum kernels.Digest
	lo, hi := c.share(part)
	for i := lo; i < hi; i++ {
		for j0, j1 := c.columns(part); j0 < j1; j0 += chunk {
			h := &ws.hash
			h.n, h.x = min(chunk, j1-j0), c.x[0].at(i, j0)
			h.start = c.place.ID + (c.place.First+uint64(i)*c.place.RowStride+uint64(j0)+1)*hashIndex
			h.call(c.b.isa.hash)
			sum.Add(h.sum)
		}
	}
	c.mu.Lock()
	c.digest.Add(sum)
	c.mu.Unlock()
}

//go:noinline
func (h *hashArgs) call(f func(*byte)) { f((*byte)(unsafe.Pointer(h))) }

// HashChanged implements kernels.Kernels: equal stretches, the most there is
// between two steps of a frozen tensor, are skipped as bytes.
func (b *Backend) HashChanged(d *kernels.Digest, x, old kernels.Tensor, at kernels.Place) (changed int) {
	if b.isa == nil {
		return b.Backend.HashChanged(d, x, old, at)
	}
	kernels.CheckHashChanged(x, old)
	if x.Len() == 0 {
		return 0
	}
	c := b.newCall(changedPart)
	c.x[0], c.x[1], c.place, c.digest, c.hold = viewOf(x), viewOf(old), at, d, true
	c.parallelRows(x.Rows, x.Cols)
	changed = c.count
	c.drop()
	return changed
}

func changedPart(c *call, _ *workspace, part int) {
	const stretch = 64
	var sum kernels.Digest
	n := 0
	lo, hi := c.share(part)
	for i := lo; i < hi; i++ {
		x, old := c.x[0].row(i), c.x[1].row(i)
		index := c.place.First + uint64(i)*c.place.RowStride
		for j, end := c.columns(part); j < end; j += stretch {
			k := min(j+stretch, end)
			if bytes.Equal(raw(x[j:k]), raw(old[j:k])) {
				continue
			}
			n += changes(&sum, x[j:k], old[j:k], c.place.ID, index+uint64(j))
		}
	}
	c.mu.Lock()
	c.digest.Add(sum)
	c.count += n
	c.mu.Unlock()
}

// changes adds the elements whose bits differ, and counts them.
func changes(sum *kernels.Digest, x, old []float32, id, index uint64) (n int) {
	for j, v := range x {
		if kernels.Bits(v) == kernels.Bits(old[j]) {
			continue
		}
		p, q := kernels.Mix(id, index+uint64(j), 1)
		sum.Add(kernels.Digest{A: p, B: q})
		n++
	}
	return n
}

// raw is the memory of x.
func raw(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}

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
	c := b.newCall(squaresPart)
	c.x[0], c.squares = viewOf(x), acc
	c.x[0].rows, c.x[0].cols = 1, x.Len()
	c.parallelRows(1, x.Len())
}

// squareBlock is how many squares of 48 bits a bin of 64 bits takes.
const squareBlock = 1 << 16

func squaresPart(c *call, ws *workspace, part int) {
	var sum kernels.SquareSum
	lo, hi := c.columns(part)
	for ; lo < hi; lo += squareBlock {
		addSquares(&sum, c.x[0].data[lo:min(lo+squareBlock, hi)])
	}
	c.mu.Lock()
	addNormal(c.squares, &sum)
	c.mu.Unlock()
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

// addSquares sorts squared mantissas of 24 bits into one bin per exponent, as
// package ref does. Four sets of bins keep neighbours of equal exponent from
// waiting for each other.
func addSquares(acc *kernels.SquareSum, x []float32) {
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
