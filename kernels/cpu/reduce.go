package cpu

import (
	"math"
	"math/bits"

	"github.com/lockstep-ml/lockstep/kernels"
)

// reduceBlock is how many elements a reduction takes at a time, so that partial
// sums stay in the first cache.
const reduceBlock = 2048

// Copy implements kernels.Kernels.
func (b *Backend) Copy(dst, src kernels.Tensor) {
	if b.isa == nil || b.threads == 1 || dst.Len() <= soloElements {
		b.Backend.Copy(dst, src)
		return
	}
	kernels.CheckCopy(dst, src)
	c := b.newCall(copyPart, noPath, pathCopy)
	c.x[0], c.x[1] = viewOf(dst), viewOf(src)
	c.parallelRows(1, dst.Len())
}

func copyPart(c *call, _ *workspace, part int) {
	lo, hi := c.columns(part)
	copy(c.x[0].data[lo:hi], c.x[1].data[lo:hi])
}

// Reduce implements kernels.Kernels.
func (b *Backend) Reduce(dst, src []kernels.Tensor, op kernels.Op) {
	if b.isa == nil {
		b.Backend.Reduce(dst, src, op)
		return
	}
	kernels.CheckReduce(dst, src, op)
	if len(dst) == 0 || dst[0].Len() == 0 {
		return
	}
	if op == kernels.Sum && len(dst) == 1 && allPresent(src) {
		switch len(src) {
		case 2:
			b.elementwise(pathReduceTwo, b.isa.add, [12]float32{}, dst[0].Len(), 1, dst[0], src[0], src[1])
			return
		case 4:
			b.elementwise(pathReduceFour, b.isa.tree4, [12]float32{}, dst[0].Len(), 1, dst[0], src[0], src[1], src[2], src[3])
			return
		}
	}
	shared := pathReduce
	if op == kernels.Max {
		shared = pathReduceMax
	}
	c := b.newCall(reducePart, noPath, shared)
	c.tensors = [2][]kernels.Tensor{dst, src}
	c.first = int(op)
	c.parallelRows(1, dst[0].Len())
}

func reducePart(c *call, ws *workspace, part int) {
	dst, src := c.tensors[0], c.tensors[1]
	lo, hi := c.columns(part)
	room := ws.c.take(reduceBlock * (2 + bits.Len(uint(len(src)))))
	for ; lo < hi; lo += reduceBlock {
		n := min(reduceBlock, hi-lo)
		acc, rest := room[:n], room[reduceBlock:]
		r := reduction{ws, c.b.isa, src, lo, n}
		switch {
		case kernels.Op(c.first) == kernels.Max:
			r.maximum(acc)
		case !r.tree(acc, 0, len(src), rest):
			fillWith(acc, math.Float32frombits(1<<31))
		}
		for _, d := range dst {
			copy(viewOf(d).data[lo:lo+n], acc)
		}
	}
}

// reduction is n elements from lo on of all sources.
type reduction struct {
	ws    *workspace
	isa   *isa
	src   []kernels.Tensor
	lo, n int
}

func fillWith(x []float32, v float32) {
	for i := range x {
		x[i] = v
	}
}

// source is the elements of source i; nil where it is absent.
func (r *reduction) source(i int) []float32 {
	if r.src[i].Absent() {
		return nil
	}
	return viewOf(r.src[i]).data[r.lo : r.lo+r.n]
}

// tree writes the tree over sources [i, j) to acc and reports whether any was
// there. The left half of m leaves is the largest power of two below m, which
// is where the doubling distances of tree() put it.
func (r *reduction) tree(acc []float32, i, j int, rest []float32) bool {
	if j-i == 1 {
		x := r.source(i)
		copy(acc, x)
		return x != nil
	}
	half := 1 << (bits.Len(uint(j-i-1)) - 1)
	if j-i == 4 && r.present(i, j) {
		r.ws.rowOf(r.isa.tree4, r.n, &acc[0], &r.source(i)[0], &r.source(i + 1)[0], &r.source(i + 2)[0], &r.source(i + 3)[0])
		return true
	}
	if j-i == 2 {
		if x, y := r.source(i), r.source(i+1); x != nil && y != nil {
			r.ws.rowOf(r.isa.add, r.n, &acc[0], &x[0], &y[0])
			return true
		}
	}
	if !r.tree(acc, i, i+half, rest) {
		return r.tree(acc, i+half, j, rest)
	}
	right := rest[:r.n]
	if r.tree(right, i+half, j, rest[reduceBlock:]) {
		r.ws.rowOf(r.isa.add, r.n, &acc[0], &acc[0], &right[0])
	}
	return true
}

// present reports whether all of sources [i, j) are there.
func (r *reduction) present(i, j int) bool { return allPresent(r.src[i:j]) }

func allPresent(src []kernels.Tensor) bool {
	for _, t := range src {
		if t.Absent() {
			return false
		}
	}
	return true
}

// maximum writes the maximum over all sources to acc.
func (r *reduction) maximum(acc []float32) {
	fillWith(acc, float32(math.Inf(-1)))
	for i := range r.src {
		if x := r.source(i); x != nil {
			r.ws.rowOf(r.isa.larger, r.n, &acc[0], &x[0])
		}
	}
}
