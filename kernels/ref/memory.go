package ref

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/lockstep-ml/lockstep/kernels"
)

// buffer is the memory of one Alloc, or lent by somebody; data is nil after Free.
type buffer[T Float] struct {
	data []T
	from kernels.Pool // nil is the run-time's memory
	lent bool
}

// Len is the capacity in elements.
func (b *buffer[T]) Len() int { return len(b.data) }

// Alloc returns n zeroed elements. It refuses a negative n, a size beyond the
// address space and a size that the system will not map; the error names n.
func (b *Backend[T]) Alloc(n int) (kernels.Buffer, error) {
	size := int64(elementBytes[T]())
	if n < 0 || int64(n) > math.MaxInt64/size {
		return nil, fmt.Errorf("%s: cannot allocate %d elements of %d bytes", b.Name(), n, size)
	}
	bytes := int64(n) * size
	if err := probe(bytes); err != nil {
		return nil, fmt.Errorf("%s: cannot allocate %d elements of %d bytes: %w", b.Name(), n, size, err)
	}
	buf := b.zeros(n)
	live := b.live.Add(bytes)
	for peak := b.peak.Load(); live > peak && !b.peak.CompareAndSwap(peak, live); {
		peak = b.peak.Load()
	}
	return buf, nil
}

// zeros is a buffer of the backend's pool, or of the run-time's memory.
func (b *Backend[T]) zeros(n int) *buffer[T] {
	if b.from != nil && is32[T]() {
		if x, ok := any(b.from.Take(n)).([]T); ok && x != nil {
			return &buffer[T]{data: x, from: b.from}
		}
	}
	return &buffer[T]{data: make([]T, n)}
}

// View is a buffer of memory that the backend has not allocated and does not count, and
// which Free leaves to whom it belongs. Only the float32 instance has such.
func (b *Backend[T]) View(x []float32) (kernels.Buffer, bool) {
	data, ok := any(x).([]T)
	return &buffer[T]{data: data, lent: true}, ok
}

// Free ends the use of a buffer: kernels on it panic from now on. Nil and
// freed buffers are let through.
func (b *Backend[T]) Free(buf kernels.Buffer) {
	if buf == nil {
		return
	}
	own := ownBuffer[T](buf)
	if !own.lent {
		b.live.Add(-int64(len(own.data)) * int64(elementBytes[T]()))
	}
	if own.from != nil && own.data != nil {
		own.from.Give(as32(own.data))
	}
	own.data = nil
}

// Live is the number of bytes allocated and not freed, now and at most so far.
func (b *Backend[T]) Live() (bytes, peak int64) { return b.live.Load(), b.peak.Load() }

// Write copies src into dst, exactly.
func (b *Backend[T]) Write(dst kernels.Tensor, src []float32) { write[T](dst, src) }

// WriteWide copies src into dst, each element rounded once to T.
func (b *Backend[T]) WriteWide(dst kernels.Tensor, src []float64) { write[T](dst, src) }

// Read copies src into dst, rounded to float32 by the float64 instance. The
// error is always nil.
func (b *Backend[T]) Read(dst []float32, src kernels.Tensor) error { return read[T](dst, src) }

// ReadWide copies src into dst without rounding. The error is always nil.
func (b *Backend[T]) ReadWide(dst []float64, src kernels.Tensor) error { return read[T](dst, src) }

// Host is the elements of a contiguous tensor of the float32 instance.
func (b *Backend[T]) Host(t kernels.Tensor) ([]float32, bool) {
	if !is32[T]() || !t.Contiguous() {
		return nil, false
	}
	return as32(flat[T]("host", t)), true
}

// Span is the range of addresses from t's first element to its last, gaps
// between rows included, in the space "host". A tensor without elements has an
// empty span.
func (b *Backend[T]) Span(t kernels.Tensor) kernels.Span {
	m := view[T]("span", t)
	if m.rows == 0 || m.cols == 0 {
		return kernels.Span{Space: "host"}
	}
	lo := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(m.data))))
	return kernels.Span{Space: "host", Lo: lo, Hi: lo + uint64(len(m.data))*elementBytes[T]()}
}

// Sync returns nil: every kernel is done when it returns.
func (b *Backend[T]) Sync() error { return nil }

// Data is the elements of a contiguous tensor of a Backend[T], shared and not
// copied. It panics on tensors that are strided or belong elsewhere.
func Data[T Float](t kernels.Tensor) []T { return flat[T]("data", t) }

func elementBytes[T Float]() uint64 {
	var x T
	return uint64(unsafe.Sizeof(x))
}

func write[T, S Float](dst kernels.Tensor, src []S) {
	m := view[T]("write", dst)
	mustEqual("write", "source", len(src), dst.Len())
	for i := range m.rows {
		convert(m.row(i), src[i*m.cols:(i+1)*m.cols])
	}
}

func read[T, D Float](dst []D, src kernels.Tensor) error {
	m := view[T]("read", src)
	mustEqual("read", "destination", len(dst), src.Len())
	for i := range m.rows {
		convert(dst[i*m.cols:(i+1)*m.cols], m.row(i))
	}
	return nil
}

// convert copies with at most one rounding; equal types keep all bits, those of
// signalling NaN too.
func convert[D, S Float](dst []D, src []S) {
	if is32[D]() && is32[S]() {
		copy(as32(dst), as32(src))
		return
	}
	for i, x := range src {
		dst[i] = D(x)
	}
}
