package cpu

import (
	"bytes"
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
	if b.isa == nil {
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
		if c.b.isa.hash == nil {
			j0, j1 := c.columns(part)
			hashPlain(&sum, c.x[0].row(i)[j0:j1], c.place.ID, c.place.First+uint64(i)*c.place.RowStride+uint64(j0))
			continue
		}
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

// hashPlain adds x in plain Go.
func hashPlain(sum *kernels.Digest, x []float32, id, index uint64) {
	for j, v := range x {
		p, q := kernels.Mix(id, index+uint64(j), uint64(kernels.Bits(v)))
		sum.A += p
		sum.B += q
		if v-v != 0 { // NaN or infinite
			sum.NonFinite++
		}
	}
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
