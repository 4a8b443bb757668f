//go:build cuda

package cuda

import (
	"github.com/lockstep-ml/lockstep/gpu"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Reduce implements kernels.Kernels.
func (b *Backend) Reduce(dst, src []kernels.Tensor, op kernels.Op) {
	kernels.CheckReduce(dst, src, op)
	if len(dst) == 0 || dst[0].Len() == 0 {
		return
	}
	kernel := "reduce_sum"
	if op == kernels.Max {
		kernel = "reduce_max"
	}
	b.enter()
	defer b.mu.Unlock()
	if !b.room(8*(len(dst)+len(src)), 2) {
		return
	}
	near, done := b.nearby(src)
	defer done()
	out, doneOut := b.nearby(dst)
	defer doneOut()
	to, from := b.list(addresses(out)), b.list(addresses(near))
	n := dst[0].Len()
	b.begin(kernel).words(to).ints(len(dst)).words(from).ints(len(src)).words(uint64(n)).elements(n)
	b.send(dst, out)
}

func addresses(ts []kernels.Tensor) []byte {
	list := make([]uint64, 0, len(ts))
	for _, t := range ts {
		list = append(list, address(t))
	}
	return uint64s(list)
}

// bins is how many sums sum_squares makes: of each exponent, and of what is not finite.
const bins = 256

// most is how many elements a kernel of this file takes: so many squares of one exponent
// fit its sums, and their indices in 32 bits.
const most = 1 << 30

// collect lets launch add integers to n words of zeros and waits for them.
func (b *Backend) collect(n int, launch func(at uint64)) []uint64 {
	b.note(b.stream.Fill(b.sums, 0, 0, 8*n))
	launch(b.sums.Address())
	out := b.found[:n]
	clear(out)
	b.waits++
	b.note(b.stream.Download(gpu.AsBytes(out), b.sums, 0))
	return out
}

// SumSquares implements kernels.Kernels.
func (b *Backend) SumSquares(acc *kernels.SquareSum, x kernels.Tensor) {
	kernels.CheckSumSquares(x)
	b.enter()
	defer b.mu.Unlock()
	const special, block = bins - 1, 16384 // SQUARES of digest.cu
	for at, n := 0, x.Len(); at < n; at += most {
		part := x.Range(at, min(n, at+most))
		s := b.collect(2*bins, func(out uint64) {
			c := b.begin("sum_squares")
			c.words(out).tensors(part).words(uint64(part.Len())).launch(ceil(part.Len(), block), 1, c.r.threads)
		})
		for e := range special {
			low, high := s[2*e], s[2*e+1]
			// (high*2^32 + low) * 2^(2e-2): mantissas are in units of 2^(max(e,1)-150)
			acc.AddScaled(0, low, 2*max(e, 1)-2)
			acc.AddScaled(high>>32, high<<32, 2*max(e, 1)-2)
		}
		acc[kernels.SquareInf] += s[2*special]
		acc[kernels.SquareNaN] += s[2*special+1]
	}
}

// hashBlocks bounds the blocks of a digest: each adds to the same three words.
const hashBlocks = 4096

// digest launches a kernel that gives two sums and a count over the elements of tensors of
// one shape, whose place is at.
func (b *Backend) digest(kernel string, at kernels.Place, ts ...kernels.Tensor) (d kernels.Digest) {
	x := ts[0]
	if x.Len() == 0 {
		return d
	}
	flat := x.Rows > 1 && at.RowStride == uint64(x.Cols)
	for _, t := range ts {
		flat = flat && t.Contiguous()
	}
	if flat {
		for i, t := range ts {
			ts[i] = t.As(1, t.Len())
		}
		x = ts[0]
	}
	for lo := 0; lo < x.Cols; lo += most {
		cols := min(x.Cols-lo, most)
		s := b.collect(3, func(out uint64) {
			c := b.begin(kernel).words(out)
			for _, t := range ts {
				c.rows(t.ColRange(lo, lo+cols))
			}
			wide := min(ceil(cols, each*c.r.threads), hashBlocks)
			c.ints(x.Rows, cols).words(at.ID, at.First+uint64(lo), at.RowStride)
			c.launch(wide, min(x.Rows, max(hashBlocks/wide, 1)), c.r.threads)
		})
		d.Add(kernels.Digest{A: s[0], B: s[1], NonFinite: s[2]})
	}
	return d
}

// Hash implements kernels.Kernels.
func (b *Backend) Hash(d *kernels.Digest, x kernels.Tensor, at kernels.Place) {
	kernels.CheckHash(x)
	b.enter()
	defer b.mu.Unlock()
	d.Add(b.digest("hash", at, x))
}

// HashChanged implements kernels.Kernels.
func (b *Backend) HashChanged(d *kernels.Digest, x, old kernels.Tensor, at kernels.Place) (changed int) {
	kernels.CheckHashChanged(x, old)
	b.enter()
	defer b.mu.Unlock()
	got := b.digest("hash_changed", at, x, old)
	d.Add(kernels.Digest{A: got.A, B: got.B})
	return int(got.NonFinite)
}
