// Package ref is the definition of the canonical kernels in plain Go: a
// transcription of the loops in the doc comments of kernels.Kernels, generic
// over the element type.
//
// The float32 instance is the arithmetic that every other backend must
// reproduce bit for bit. The float64 instance is its oracle: the same orders of
// the same sums in float64, with exp and log of package math, so that what the
// two disagree about is rounding and nothing else. Its bits are promised to
// nobody.
//
// Legend: M, N, K matrix sizes, n rows (tokens), H hidden size, V vocabulary,
// G groups.
package ref

import (
	"sync"
	"sync/atomic"

	"github.com/lockstep-ml/lockstep/kernels"
)

// Backend runs the canonical kernels on slices of T. It has no faults, runs
// every kernel to its end before returning, and may be used by several
// goroutines at once as long as they write different tensors.
type Backend[T Float] struct {
	live, peak atomic.Int64
	pool       sync.Pool // *[]T, scratch of the kernels
	from       kernels.Pool
}

var (
	_ kernels.Backend = (*Backend[float32])(nil)
	_ kernels.Backend = (*Backend[float64])(nil)
	_ kernels.Tallier = (*Backend[float32])(nil)
)

// New opens a backend with no memory in use.
func New[T Float]() *Backend[T] { return &Backend[T]{} }

// NewIn opens a backend that allocates from a pool what that has; nil has nothing. What is
// not freed stays in use for as long as the pool is.
func NewIn(p kernels.Pool) *Backend[float32] { return &Backend[float32]{from: p} }

// Name is "ref" for float32 and "ref64" for float64.
func (b *Backend[T]) Name() string {
	if is32[T]() {
		return "ref"
	}
	return "ref64"
}

// Tally implements kernels.Tallier: there is one way through each kernel, so it
// lists nothing.
func (b *Backend[T]) Tally() []kernels.Routine { return nil }

// scratch lends a slice of n elements of unknown content; hand it to release.
func (b *Backend[T]) scratch(n int) *[]T {
	s, _ := b.pool.Get().(*[]T)
	if s == nil {
		s = new([]T)
	}
	if cap(*s) < n {
		*s = make([]T, n)
	}
	*s = (*s)[:n]
	return s
}

func (b *Backend[T]) release(s *[]T) { b.pool.Put(s) }
