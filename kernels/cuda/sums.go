//go:build cuda

package cuda

import (
	"fmt"

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
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.room(8*(len(dst)+len(src)), 2) {
		return
	}
	to, from := b.list(addresses(dst)), b.list(addresses(src))
	n := dst[0].Len()
	b.begin(kernel).words(to).ints(len(dst)).words(from).ints(len(src)).words(uint64(n)).elements(n)
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
	b.mu.Lock()
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

// digest launches a kernel that gives two sums and a count, over the elements of x, in
// parts.
func (b *Backend) digest(kernel string, x kernels.Tensor, at kernels.Place, operands func(c call, part kernels.Tensor, row int) call) (d kernels.Digest) {
	if x.Len() == 0 {
		return d
	}
	if x.Rows > 1 && x.Contiguous() && at.RowStride == uint64(x.Cols) {
		x = x.As(1, x.Len())
	}
	for lo := 0; lo < x.Cols; lo += most {
		part := x.ColRange(lo, min(x.Cols, lo+most))
		s := b.collect(3, func(out uint64) {
			c := b.begin(kernel)
			columns := min(ceil(part.Cols, each*c.r.threads), hashBlocks)
			operands(c.words(out), part, lo).ints(part.Rows, part.Cols).words(at.ID, at.First+uint64(lo), at.RowStride).
				launch(columns, min(part.Rows, max(hashBlocks/columns, 1)), c.r.threads)
		})
		d.Add(kernels.Digest{A: s[0], B: s[1], NonFinite: s[2]})
	}
	return d
}

// Hash implements kernels.Kernels.
func (b *Backend) Hash(d *kernels.Digest, x kernels.Tensor, at kernels.Place) {
	kernels.CheckHash(x)
	b.mu.Lock()
	defer b.mu.Unlock()
	d.Add(b.digest("hash", x, at, func(c call, part kernels.Tensor, _ int) call { return c.rows(part) }))
}

// HashChanged implements kernels.Kernels.
func (b *Backend) HashChanged(d *kernels.Digest, x, old kernels.Tensor, at kernels.Place) (changed int) {
	kernels.CheckHashChanged(x, old)
	if x.Len() > most {
		panic(fmt.Sprintf("kernels: HashChanged: more than %d elements", most))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	got := b.digest("hash_changed", x, at, func(c call, part kernels.Tensor, _ int) call { return c.tensors(part, old) })
	d.Add(kernels.Digest{A: got.A, B: got.B})
	return int(got.NonFinite)
}
