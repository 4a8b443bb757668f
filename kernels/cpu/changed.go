package cpu

import (
	"bytes"
	"math"
	"unsafe"

	"github.com/lockstep-ml/lockstep/kernels"
)

// stretch is how many elements HashChanged looks at together.
const stretch = 256

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

func changedPart(c *call, ws *workspace, part int) {
	var sum kernels.Digest
	n := 0
	lo, hi := c.share(part)
	for i := lo; i < hi; i++ {
		x, old := c.x[0].row(i), c.x[1].row(i)
		index := c.place.First + uint64(i)*c.place.RowStride
		for j, end := c.columns(part); j < end; j += stretch {
			k := min(j+stretch, end)
			if !bytes.Equal(raw(x[j:k]), raw(old[j:k])) {
				n += ws.changes(c.b.isa.hash, &sum, x[j:k], old[j:k], c.place.ID, index+uint64(j))
			}
		}
	}
	c.mu.Lock()
	c.digest.Add(sum)
	c.count += n
	c.mu.Unlock()
}

// changes adds the elements of one stretch that differ, and counts them. Their
// digest is that of as many elements with bits 1; where most differ, as after
// an optimizer's step, all are added by hash and the others taken out again.
func (ws *workspace) changes(hash func(*byte), sum *kernels.Digest, x, old []float32, id, index uint64) int {
	sign := uint64(1)
	same, differ := ws.compare(x, old)
	list := differ
	if hash != nil && len(same) < len(differ) {
		h := &ws.hash
		h.n, h.x, h.start = len(x), ws.units(), id+(index+1)*hashIndex
		h.call(hash)
		sum.Add(h.sum)
		sign, list = ^uint64(0), same // -1
	}
	for _, j := range list {
		p, q := kernels.Mix(id, index+uint64(j), 1)
		sum.Add(kernels.Digest{A: sign * p, B: sign * q})
	}
	return len(differ)
}

// compare lists the elements of a stretch whose bits are the same, every NaN
// being one, and those that differ.
func (ws *workspace) compare(x, old []float32) (same, differ []uint16) {
	s, d := 0, 0
	old = old[:len(x)]
	for j, v := range x {
		ws.same[s], ws.differ[d] = uint16(j), uint16(j)
		if w := old[j]; math.Float32bits(v) == math.Float32bits(w) || v != v && w != w {
			s++
		} else {
			d++
		}
	}
	return ws.same[:s], ws.differ[:d]
}

// units points to a stretch of elements with bits 1.
func (ws *workspace) units() *float32 {
	if ws.unit[0] == 0 {
		for i := range ws.unit {
			ws.unit[i] = math.Float32frombits(1)
		}
	}
	return &ws.unit[0]
}

// raw is the memory of x.
func raw(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}
