// Package shard is the pure arithmetic of splitting: elements, layers,
// vocabularies and sequences over parts. It imports nothing of this module.
package shard

import "fmt"

// Range is a half-open range of indices.
type Range struct{ Lo, Hi int }

// Len is the number of indices.
func (r Range) Len() int { return r.Hi - r.Lo }

// Empty reports whether the range holds no index.
func (r Range) Empty() bool { return r.Hi <= r.Lo }

// Has reports whether i lies in the range.
func (r Range) Has(i int) bool { return i >= r.Lo && i < r.Hi }

// Intersect is the common part of two ranges; empty ranges come back as {lo, lo}.
func (r Range) Intersect(o Range) Range {
	x := Range{max(r.Lo, o.Lo), min(r.Hi, o.Hi)}
	if x.Hi < x.Lo {
		x.Hi = x.Lo
	}
	return x
}

// Shift moves the range by d.
func (r Range) Shift(d int) Range { return Range{r.Lo + d, r.Hi + d} }

// Part names one of Size equal partners.
type Part struct{ Index, Size int }

// Check refuses sizes below 1 and indices outside [0, Size).
func (p Part) Check() error {
	if p.Size < 1 {
		return fmt.Errorf("size %d: must be at least 1", p.Size)
	}
	if p.Index < 0 || p.Index >= p.Size {
		return fmt.Errorf("rank %d: must lie in [0,%d)", p.Index, p.Size)
	}
	return nil
}

// Of is this part's share of n indices by the shard rule: contiguous, the first
// n mod Size parts one longer (ZeRO's for_rank rule). p must be valid.
func (p Part) Of(n int) Range {
	q, r := n/p.Size, n%p.Size
	lo := p.Index*q + min(p.Index, r)
	hi := lo + q
	if p.Index < r {
		hi++
	}
	return Range{lo, hi}
}

// Bounds holds the size+1 ascending bounds of the shard rule over n indices.
func Bounds(n, size int) []int {
	b := make([]int, size+1)
	for i := range size {
		b[i+1] = Part{i, size}.Of(n).Hi
	}
	return b
}

// CheckBounds refuses bounds that are not size+1 ascending values from 0 to n;
// nil becomes the shard rule.
func CheckBounds(bounds []int, n, size int) ([]int, error) {
	if bounds == nil {
		return Bounds(n, size), nil
	}
	if len(bounds) != size+1 || bounds[0] != 0 || bounds[size] != n {
		return nil, fmt.Errorf("bounds %v: want %d ascending values from 0 to %d", bounds, size+1, n)
	}
	for i := range size {
		if bounds[i] > bounds[i+1] {
			return nil, fmt.Errorf("bounds %v: value %d descends", bounds, i+1)
		}
	}
	return bounds, nil
}

// Interleave lists the indices of [0, n) that part p takes by the seeds' rule
// for data: Index, Index+Size, Index+2*Size, ...
func (p Part) Interleave(n int) []int {
	var out []int
	for i := p.Index; i < n; i += p.Size {
		out = append(out, i)
	}
	return out
}

// IsPowerOfTwo reports whether n is 1, 2, 4, ...
func IsPowerOfTwo(n int) bool { return n > 0 && n&(n-1) == 0 }
