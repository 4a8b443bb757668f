package ref

import (
	"math"
	"math/bits"

	"github.com/lockstep-ml/lockstep/kernels"
)

// sumTree adds rows of n elements in the order of tree() while they come one
// after another: a binary counter whose stack holds the sums of 2^i leaves.
// The bottom of the stack is the destination, so one leaf costs no copy.
type sumTree[T Float] struct {
	bottom, rest []T
	n            int
	leaves, top  int // leaves so far, rows on the stack
}

// stackRows is how many rows besides the destination a tree of that many leaves
// needs.
func stackRows(leaves int) int { return bits.Len(uint(leaves)) - 1 }

// newSumTree starts a tree into dst; scratch holds stackRows(leaves)*len(dst).
func newSumTree[T Float](dst, scratch []T) sumTree[T] {
	return sumTree[T]{bottom: dst, rest: scratch, n: len(dst)}
}

func (t *sumTree[T]) row(i int) []T {
	if i == 0 {
		return t.bottom
	}
	return t.rest[(i-1)*t.n : i*t.n]
}

// next is the row for the next leaf, of unknown content; push adds it.
func (t *sumTree[T]) next() []T { return t.row(t.top) }

func (t *sumTree[T]) push() {
	t.leaves++
	t.top++
	for c := t.leaves; c&1 == 0; c >>= 1 {
		t.merge()
	}
}

func (t *sumTree[T]) merge() {
	t.top--
	addTo(t.row(t.top-1), t.row(t.top))
}

// finish leaves the sum in the destination.
func (t *sumTree[T]) finish() {
	for t.top > 1 {
		t.merge()
	}
}

// reduceBlock is how many elements Reduce takes at a time, so that the stack
// stays in cache.
const reduceBlock = 1024

// Reduce implements kernels.Kernels. No source at all counts as all absent.
func (b *Backend[T]) Reduce(dst, src []kernels.Tensor, op kernels.Op) {
	if len(dst) == 0 {
		return
	}
	n := dst[0].Len()
	to := make([][]T, len(dst))
	for i, t := range dst {
		to[i] = sized[T]("reduce", t, n)
	}
	from := make([][]T, 0, len(src))
	for _, t := range src {
		from = append(from, sizedOrAbsent[T]("reduce", t, n))
	}
	block := min(n, reduceBlock)
	s := b.scratch(block * (2 + bits.Len(uint(len(src)))))
	defer b.release(s)
	for at := 0; at < n; at += block {
		acc, rest := (*s)[:min(block, n-at)], (*s)[block:]
		switch op {
		case kernels.Sum:
			if !treeSum(acc, from, at, rest) {
				fill(acc, T(math.Copysign(0, -1)))
			}
		case kernels.Max:
			maxOf(acc, from, at)
		default:
			misuse("reduce", "operation %d", op)
		}
		for _, d := range to {
			copy(d[at:], acc)
		}
	}
}

// treeSum writes the tree over src at elements at.. to dst, and reports whether
// any leaf was there. The left half of n leaves is the largest power of two
// below n, which is where the doubling distances of tree() put it.
func treeSum[T Float](dst []T, src [][]T, at int, rest []T) bool {
	n := len(dst)
	switch len(src) {
	case 0:
		return false
	case 1:
		if src[0] == nil {
			return false
		}
		copy(dst, src[0][at:at+n])
		return true
	}
	half := 1 << (bits.Len(uint(len(src)-1)) - 1)
	if !treeSum(dst, src[:half], at, rest) {
		return treeSum(dst, src[half:], at, rest)
	}
	if treeSum(rest[:n], src[half:], at, rest[n:]) {
		addTo(dst, rest[:n])
	}
	return true
}

func maxOf[T Float](dst []T, src [][]T, at int) {
	fill(dst, T(math.Inf(-1)))
	for _, x := range src {
		if x == nil {
			continue
		}
		for i, v := range x[at : at+len(dst)] {
			if v > dst[i] {
				dst[i] = v
			}
		}
	}
}

func fill[T Float](x []T, v T) {
	for i := range x {
		x[i] = v
	}
}
