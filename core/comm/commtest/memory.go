package commtest

import (
	"errors"
	"fmt"
	"math"
	"unsafe"

	"github.com/lockstep-ml/lockstep/kernels"
)

// Memory is memory of this process with the kernels that collectives use: Copy
// and Reduce. It lets a communicator be tested without a compute backend; the
// other methods of kernels.Kernels must not be called.
type Memory struct{ kernels.Kernels }

// hostBuffer is the memory of a Memory.
type hostBuffer []float32

// Len is the number of elements.
func (b hostBuffer) Len() int { return len(b) }

// Name is "host".
func (Memory) Name() string { return "host" }

// Alloc returns n zeros.
func (Memory) Alloc(n int) (kernels.Buffer, error) {
	if n < 0 {
		return nil, fmt.Errorf("host: %d elements: must not be negative", n)
	}
	return hostBuffer(make([]float32, n)), nil
}

// Free has nothing to do.
func (Memory) Free(kernels.Buffer) {}

// View is a buffer of memory that Alloc has not given.
func (Memory) View(x []float32) (kernels.Buffer, bool) { return hostBuffer(x), true }

// elements is what a contiguous tensor views.
func elements(t kernels.Tensor) []float32 {
	if t.Len() == 0 {
		return nil
	}
	return t.Buf.(hostBuffer)[t.Off : t.Off+t.Len()]
}

// Write copies src into dst.
func (Memory) Write(dst kernels.Tensor, src []float32) { copy(elements(dst), src) }

// WriteWide copies src into dst, rounded.
func (Memory) WriteWide(dst kernels.Tensor, src []float64) {
	x := elements(dst)
	for i := range x {
		x[i] = float32(src[i])
	}
}

// Read copies src into dst.
func (Memory) Read(dst []float32, src kernels.Tensor) error {
	if len(dst) != src.Len() {
		return errors.New("host: read into a slice of another length")
	}
	copy(dst, elements(src))
	return nil
}

// ReadWide copies src into dst.
func (Memory) ReadWide(dst []float64, src kernels.Tensor) error {
	for i, v := range elements(src) {
		dst[i] = float64(v)
	}
	return nil
}

// Host is the elements of a contiguous tensor.
func (Memory) Host(t kernels.Tensor) ([]float32, bool) {
	if !t.Contiguous() {
		return nil, false
	}
	return elements(t), true
}

// Span gives the addresses of t's elements.
func (Memory) Span(t kernels.Tensor) kernels.Span {
	lo := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(elements(t)))))
	return kernels.Span{Space: "process", Lo: lo, Hi: lo + uint64(t.Len())*4}
}

// Sync has nothing to wait for.
func (Memory) Sync() error { return nil }

// Copy implements kernels.Kernels.
func (Memory) Copy(dst, src kernels.Tensor) { copy(elements(dst), elements(src)) }

// Reduce implements kernels.Kernels, one element at a time. An absent source is
// the element that changes nothing: -0, or -Inf for the maximum.
func (Memory) Reduce(dst, src []kernels.Tensor, op kernels.Op) {
	n := 0
	for _, t := range dst {
		n = max(n, t.Len())
	}
	neutral := math.Float32frombits(1 << 31)
	if op == kernels.Max {
		neutral = float32(math.Inf(-1))
	}
	x := make([]float32, len(src))
	for i := range n {
		for r, s := range src {
			x[r] = neutral
			if !s.Absent() {
				x[r] = elements(s)[i]
			}
		}
		v := fold(x, op)
		for _, d := range dst {
			if !d.Absent() {
				elements(d)[i] = v
			}
		}
	}
}

// fold is the canonical tree, which overwrites x, or the maximum.
func fold(x []float32, op kernels.Op) float32 {
	if op == kernels.Max {
		m := float32(math.Inf(-1))
		for _, v := range x {
			if v > m {
				m = v
			}
		}
		return m
	}
	for d := 1; d < len(x); d *= 2 {
		for i := 0; i+d < len(x); i += 2 * d {
			x[i] += x[i+d]
		}
	}
	return x[0]
}
