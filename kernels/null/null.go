// Package null is a backend without memory and without arithmetic, for dry
// runs: it checks shapes as a real backend must, and counts.
//
//	b := null.New()
//	... run a training step on b ...
//	for name, c := range b.Counts().Kernels { ... c.FLOPs, c.BytesRead ... }
//
// Buffers have a length and an address range but no elements, so a plan far
// larger than the machine can be walked through. Everything read from it is
// zero; digests and sums of squares get no contribution.
//
// # What is counted
//
// FLOPs are the written additions, subtractions, multiplications, divisions,
// square roots, exponentials and logarithms of the kernel's definition, each
// one, and an fma two; comparisons, moves, negations and what is computed once
// per call are none, and neither are the few additions of a tree over groups
// or of the last five steps of lanes. Bytes are the least traffic: each element
// of an operand that the definition uses is read once, and each it sets is
// written once, at 4 bytes; token indices are not counted. Under attention only
// the keys 0..t of a query count.
package null

import (
	"fmt"
	"math"
	"sync"

	"github.com/lockstep-ml/lockstep/kernels"
)

// elementBytes is the size of an element: plans are for float32.
const elementBytes = 4

// align is the distance that addresses of buffers are rounded up to.
const align = 64

// Count is the work of one kernel, or of one method of Memory, over all calls.
type Count struct {
	Calls        int64
	FLOPs        int64
	BytesRead    int64
	BytesWritten int64
}

// Counts is a snapshot of what a Backend has counted: work by method name, and
// the bytes of buffers allocated and not yet freed, now and at most.
type Counts struct {
	Kernels    map[string]Count
	Live, Peak int64
}

// FLOPs is the sum over all kernels.
func (c Counts) FLOPs() int64 {
	n := int64(0)
	for _, k := range c.Kernels {
		n += k.FLOPs
	}
	return n
}

// Backend counts. It may be used by many goroutines at once.
type Backend struct {
	mu     sync.Mutex
	counts Counts
	next   uint64 // the first free address
}

// New returns a backend with all counts at zero.
func New() *Backend {
	return &Backend{counts: Counts{Kernels: map[string]Count{}}, next: align}
}

// buffer is an address range; freed is guarded by the backend's mutex.
type buffer struct {
	n     int
	lo    uint64
	freed bool
}

// Len is the capacity in elements.
func (b *buffer) Len() int { return b.n }

// Name is "null".
func (b *Backend) Name() string { return "null" }

// Counts is a copy of the counts so far.
func (b *Backend) Counts() Counts {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.counts
	c.Kernels = make(map[string]Count, len(b.counts.Kernels))
	for name, k := range b.counts.Kernels {
		c.Kernels[name] = k
	}
	return c
}

// Reset sets the work to zero; live buffers stay counted, and the peak starts
// again from them.
func (b *Backend) Reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.counts.Kernels)
	b.counts.Peak = b.counts.Live
}

// add counts one call, with elements read and written.
func (b *Backend) add(name string, flops, read, written int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.counts.Kernels[name]
	c.Calls++
	c.FLOPs += int64(flops)
	c.BytesRead += int64(read) * elementBytes
	c.BytesWritten += int64(written) * elementBytes
	b.counts.Kernels[name] = c
}

// Alloc reserves an address range of n elements; it refuses negative lengths
// and those whose bytes no address can count.
func (b *Backend) Alloc(n int) (kernels.Buffer, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n < 0 || int64(n) > (math.MaxInt64-b.counts.Live-align)/elementBytes {
		return nil, fmt.Errorf("null: cannot allocate %d elements", n)
	}
	size := uint64(n) * elementBytes
	buf := &buffer{n: n, lo: b.next}
	b.next += (size + align) / align * align // also an empty buffer has an address of its own
	b.counts.Live += int64(size)
	b.counts.Peak = max(b.counts.Peak, b.counts.Live)
	return buf, nil
}

// Free gives the bytes back. Freeing twice is a programmer's mistake.
func (b *Backend) Free(x kernels.Buffer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	buf := x.(*buffer)
	if buf.freed {
		panic("kernels: Free: buffer freed twice")
	}
	buf.freed = true
	b.counts.Live -= int64(buf.n) * elementBytes
}

// Write counts the bytes written.
func (b *Backend) Write(dst kernels.Tensor, src []float32) {
	kernels.CheckTransfer("Write", dst, len(src))
	b.add("Write", 0, 0, len(src))
}

// WriteWide counts the bytes written.
func (b *Backend) WriteWide(dst kernels.Tensor, src []float64) {
	kernels.CheckTransfer("WriteWide", dst, len(src))
	b.add("WriteWide", 0, 0, len(src))
}

// Read fills dst with zeros and counts the bytes read.
func (b *Backend) Read(dst []float32, src kernels.Tensor) error {
	kernels.CheckTransfer("Read", src, len(dst))
	clear(dst)
	b.add("Read", 0, len(dst), 0)
	return nil
}

// ReadWide fills dst with zeros and counts the bytes read.
func (b *Backend) ReadWide(dst []float64, src kernels.Tensor) error {
	kernels.CheckTransfer("ReadWide", src, len(dst))
	clear(dst)
	b.add("ReadWide", 0, len(dst), 0)
	return nil
}

// Host is always false: there are no elements.
func (*Backend) Host(kernels.Tensor) ([]float32, bool) { return nil, false }

// Span gives made-up addresses in the space "null"; no two buffers share any,
// freed ones included.
func (b *Backend) Span(t kernels.Tensor) kernels.Span {
	buf := t.Buf.(*buffer)
	lo := buf.lo + uint64(t.Off)*elementBytes
	s := kernels.Span{Space: "null", Lo: lo, Hi: lo}
	if t.Len() > 0 {
		s.Hi += uint64((t.Rows-1)*t.Stride+t.Cols) * elementBytes
	}
	return s
}

// Sync has nothing to wait for.
func (b *Backend) Sync() error { return nil }
