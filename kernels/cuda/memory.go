//go:build cuda

package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/lockstep-ml/lockstep/gpu"
	"github.com/lockstep-ml/lockstep/kernels"
)

// elementBytes is the size of an element.
const elementBytes = 4

// buffer is the memory of one Alloc; n is 0 after Free.
type buffer struct {
	mem  *gpu.Buffer
	n    int
	lost runtime.Cleanup
}

// Len is the capacity in elements.
func (b *buffer) Len() int { return b.n }

// own is the buffer of a tensor that is there.
func own(t kernels.Tensor) *buffer {
	b, ok := t.Buf.(*buffer)
	if !ok {
		panic(fmt.Sprintf("kernels: buffer of another backend (%T)", t.Buf))
	}
	return b
}

// address is where a tensor begins; 0 for the absent one.
func address(t kernels.Tensor) uint64 {
	if t.Absent() {
		return 0
	}
	return own(t).mem.Address() + uint64(t.Off)*elementBytes
}

// stride is how many elements the rows of a matrix are apart; where there is one row, its
// stride means nothing.
func stride(t kernels.Tensor) int {
	if t.Rows <= 1 {
		return t.Cols
	}
	return t.Stride
}

// Alloc returns n zeroed elements of the device.
func (b *Backend) Alloc(n int) (kernels.Buffer, error) {
	b.enter()
	defer b.mu.Unlock()
	if n < 0 || uint64(n) > b.dev.Memory/elementBytes {
		return nil, fmt.Errorf("%s: cannot allocate %d elements of %d bytes: the device has %d bytes", b.Name(), n, elementBytes, b.dev.Memory)
	}
	mem, err := b.take(elementBytes * n)
	if err == nil {
		err = b.stream.Fill32(mem, 0, 0, n)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: cannot allocate %d elements of %d bytes: %w", b.Name(), n, elementBytes, err)
	}
	buf := &buffer{mem: mem, n: n}
	buf.lost = runtime.AddCleanup(buf, b.lose, mem)
	return buf, nil
}

// patience is how often Alloc looks for buffers that nobody has any more, where there is
// no memory otherwise.
const patience = 20

// take allocates memory, if need be that of buffers which nobody has any more.
func (b *Backend) take(bytes int) (*gpu.Buffer, error) {
	for i := 0; ; i++ {
		b.lostMu.Lock()
		lost := b.lost
		b.lost = nil
		b.lostMu.Unlock()
		for _, mem := range lost {
			b.note(mem.Free())
		}
		mem, err := b.dev.Alloc(bytes)
		if !errors.Is(err, gpu.OutOfMemory) || i == patience {
			return mem, err
		}
		runtime.GC()
		time.Sleep(time.Millisecond) // cleanups have a goroutine of their own
	}
}

// lose notes memory whose buffer was not freed and is gone: of a run that has ended, say.
func (b *Backend) lose(mem *gpu.Buffer) {
	b.lostMu.Lock()
	defer b.lostMu.Unlock()
	b.lost = append(b.lost, mem)
}

// Free waits for the device and ends the use of a buffer: kernels on it panic from now on.
// Nil and freed buffers are let through.
func (b *Backend) Free(x kernels.Buffer) {
	if x == nil {
		return
	}
	b.enter()
	defer b.mu.Unlock()
	buf := own(kernels.Tensor{Buf: x})
	if buf.mem == nil {
		return
	}
	buf.lost.Stop()
	b.note(buf.mem.Free())
	buf.mem, buf.n = nil, 0
}

// Write copies src into dst, exactly.
func (b *Backend) Write(dst kernels.Tensor, src []float32) {
	kernels.CheckTransfer("Write", dst, len(src))
	if len(src) == 0 {
		return
	}
	b.enter()
	defer b.mu.Unlock()
	b.waits++
	b.note(b.stream.Upload(own(dst).mem, elementBytes*dst.Off, gpu.AsBytes(src)))
}

// WriteWide copies src into dst, each element rounded once.
func (b *Backend) WriteWide(dst kernels.Tensor, src []float64) {
	kernels.CheckTransfer("WriteWide", dst, len(src))
	narrow := make([]float32, len(src))
	for i, v := range src {
		narrow[i] = float32(v)
	}
	b.Write(dst, narrow)
}

// Read copies src into dst, exactly, after all earlier kernels are done. The error is the
// first fault of the device.
func (b *Backend) Read(dst []float32, src kernels.Tensor) error {
	kernels.CheckTransfer("Read", src, len(dst))
	b.enter()
	defer b.mu.Unlock()
	if len(dst) == 0 {
		return b.fault
	}
	b.waits++
	b.note(b.stream.Download(gpu.AsBytes(dst), own(src).mem, elementBytes*src.Off))
	return b.fault
}

// ReadWide is Read into float64.
func (b *Backend) ReadWide(dst []float64, src kernels.Tensor) error {
	narrow := make([]float32, len(dst))
	if err := b.Read(narrow, src); err != nil {
		return err
	}
	for i, v := range narrow {
		dst[i] = float64(v)
	}
	return nil
}

// Host is always false: the elements are in the device's memory.
func (*Backend) Host(kernels.Tensor) ([]float32, bool) { return nil, false }

// Staging implements kernels.Stager.
func (b *Backend) Staging() kernels.Backend { return b.staging }

// Span is the range of addresses of t in the device's memory, whose space is its UUID.
func (b *Backend) Span(t kernels.Tensor) kernels.Span {
	s := kernels.Span{Space: b.dev.UUID}
	if t.Len() == 0 {
		return s
	}
	s.Lo = address(t)
	s.Hi = s.Lo + uint64((t.Rows-1)*stride(t)+t.Cols)*elementBytes
	return s
}

// work is scratch memory for n elements, of unknown content; nil where there is none, which
// is a fault.
func (b *Backend) work(n int) *gpu.Buffer {
	if b.scratch != nil && b.scratch.Bytes() >= elementBytes*n {
		return b.scratch
	}
	if b.scratch != nil {
		b.note(b.scratch.Free())
		b.scratch = nil
	}
	mem, err := b.dev.Alloc(elementBytes * n)
	if err != nil {
		b.note(err)
		return nil
	}
	b.scratch = mem
	return mem
}
