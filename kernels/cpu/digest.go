package cpu

import (
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
