package cpu

import (
	"bytes"
	"unsafe"

	"github.com/lockstep-ml/lockstep/kernels"
)

// hashArgs is the argument of isa.hash and isa.hashChanged; the generator knows
// the offsets.
type hashArgs struct {
	n       int // elements, a multiple of the vector
	x, old  *float32
	start   uint64 // what the first element mixes of its place
	a, b    uint64 // result
	special int    // not 0: x holds what is not finite, and the result is void
	differ  int    // result of hashChanged
}

// hashIndex is the multiplier of the index in kernels.Mix.
const hashIndex = 0x9e3779b97f4a7c15

// stretch is how many elements are digested at once. What is not finite makes
// its stretch slow.
const stretch = 4096

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
	c := b.newCall(hashPart, pathHashRows, pathHashColumns)
	c.x[0], c.place, c.arrays = viewOf(x), at, 1
	c.digests(d)
}

// digests dispatches the call and adds up what its parts have summed.
func (c *call) digests(d *kernels.Digest) (count int) {
	sums := c.sums((*call).parallelPlaces)
	for i := range sums {
		d.Add(sums[i].digest)
		count += sums[i].count
	}
	c.drop()
	return count
}

// parallelPlaces dispatches a call over all elements of its arrays: as one row
// where rows follow each other without a gap, in memory and in the tensor.
func (c *call) parallelPlaces() {
	x := &c.x[0]
	if x.rows > 1 && x.stride == x.cols && c.place.RowStride == uint64(x.cols) {
		for i := range c.arrays {
			n := c.x[i].rows * c.x[i].cols
			c.x[i] = view{c.x[i].data, 1, n, n}
		}
	}
	c.parallelRows(x.rows, x.cols)
}

func hashPart(c *call, ws *workspace, part int) {
	sum := &c.partial[part].digest
	*sum = kernels.Digest{}
	lo, hi := c.share(part)
	for i := lo; i < hi; i++ {
		x := c.x[0].row(i)
		index := c.place.First + uint64(i)*c.place.RowStride
		for j, end := c.columns(part); j < end; j += stretch {
			ws.digest(c.b.isa, sum, x[j:min(j+stretch, end)], c.place.ID, index+uint64(j))
		}
	}
}

// digest adds the elements of x: in vectors as long as they are finite.
func (ws *workspace) digest(s *isa, sum *kernels.Digest, x []float32, id, index uint64) {
	h := &ws.hash
	if n := ws.vectors(s, s.hash, x, nil, id, index); n > 0 {
		sum.Add(kernels.Digest{A: h.a, B: h.b})
		x, index = x[n:], index+uint64(n)
	}
	for j, v := range x {
		a, b := kernels.Mix(id, index+uint64(j), uint64(kernels.Bits(v)))
		sum.A += a
		sum.B += b
		if v-v != 0 { // NaN or infinite
			sum.NonFinite++
		}
	}
}

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
	c := b.newCall(changedPart, pathHashChangedRows, pathHashChangedColumns)
	c.x[0], c.x[1], c.place, c.arrays = viewOf(x), viewOf(old), at, 2
	return c.digests(d)
}

func changedPart(c *call, ws *workspace, part int) {
	sum := &c.partial[part]
	sum.digest, sum.count = kernels.Digest{}, 0
	lo, hi := c.share(part)
	for i := lo; i < hi; i++ {
		x, old := c.x[0].row(i), c.x[1].row(i)
		index := c.place.First + uint64(i)*c.place.RowStride
		for j, end := c.columns(part); j < end; j += stretch {
			k := min(j+stretch, end)
			if !bytes.Equal(raw(x[j:k]), raw(old[j:k])) {
				sum.count += ws.changes(c.b.isa, &sum.digest, x[j:k], old[j:k], c.place.ID, index+uint64(j))
			}
		}
	}
}

// changes adds the places at which x and old differ, every NaN being one, as
// elements with bits 1, and counts them.
func (ws *workspace) changes(s *isa, sum *kernels.Digest, x, old []float32, id, index uint64) (differ int) {
	h := &ws.hash
	if n := ws.vectors(s, s.hashChanged, x, old, id, index); n > 0 {
		sum.Add(kernels.Digest{A: h.a, B: h.b})
		x, old, index, differ = x[n:], old[n:], index+uint64(n), h.differ
	}
	for j, v := range x {
		if kernels.Bits(v) != kernels.Bits(old[j]) {
			a, b := kernels.Mix(id, index+uint64(j), 1)
			sum.Add(kernels.Digest{A: a, B: b})
			differ++
		}
	}
	return differ
}

// vectors runs f over the whole vectors of x and returns how many elements they
// hold; 0 if any of them is not finite.
func (ws *workspace) vectors(s *isa, f routine, x, old []float32, id, index uint64) int {
	n := len(x) - len(x)%s.lanes
	if n == 0 {
		return 0
	}
	h := &ws.hash
	h.n, h.x, h.old = n, unsafe.SliceData(x), unsafe.SliceData(old)
	h.start = id + (index+1)*hashIndex
	ws.marks.add(f.number)
	h.call(f.f)
	if h.special != 0 {
		return 0
	}
	return n
}

//go:noinline
func (h *hashArgs) call(f func(*byte)) { f((*byte)(unsafe.Pointer(h))) }

// raw is the memory of x.
func raw(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}
