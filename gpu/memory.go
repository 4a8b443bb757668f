//go:build cuda

package gpu

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/lockstep-ml/lockstep/gpu/internal/drv"
)

// Buffer is memory of a device. What is in it at first is undefined.
type Buffer struct {
	dev   *Device
	addr  uint64
	bytes int
	freed atomic.Bool
}

// Alloc gives memory of the device, aligned to 256 bytes. Of 0 bytes it has no address.
func (d *Device) Alloc(bytes int) (*Buffer, error) {
	b := &Buffer{dev: d, bytes: bytes}
	if bytes < 0 {
		return nil, d.fail(errors.New("there is no memory of negative size"), "cuMemAlloc of %d bytes", bytes)
	}
	if bytes > 0 {
		err := d.in(func() error {
			p, err := cu.MemAlloc(int64(bytes))
			b.addr = uint64(p)
			return err
		})
		if err != nil {
			return nil, d.fail(err, "cuMemAlloc of %d bytes", bytes)
		}
	}
	d.live.buffers.Add(1)
	d.live.bufferBytes.Add(int64(bytes))
	return b, nil
}

// Device is where the memory is.
func (b *Buffer) Device() *Device { return b.dev }

// Bytes is the size.
func (b *Buffer) Bytes() int { return b.bytes }

// Address is where the memory begins, for kernels; 0 if it has no bytes.
func (b *Buffer) Address() uint64 { return b.addr }

// Free gives the memory back, when what the device has to do so far is done. To free it
// twice is an error.
func (b *Buffer) Free() error {
	d := b.dev
	if b.freed.Swap(true) {
		return d.fail(errors.New("it was freed before"), "cuMemFree of %d bytes", b.bytes)
	}
	d.live.buffers.Add(-1)
	d.live.bufferBytes.Add(-int64(b.bytes))
	if b.bytes == 0 {
		return nil
	}
	return d.fail(d.in(func() error { return cu.MemFree(cu.DevicePtr(b.addr)) }), "cuMemFree of %d bytes", b.bytes)
}

// part is the address of n bytes of b from an offset on.
func (b *Buffer) part(offset, n int) (uint64, error) {
	if b.freed.Load() {
		return 0, fmt.Errorf("the buffer of %d bytes was freed", b.bytes)
	}
	if offset < 0 || n < 0 || offset > b.bytes-n {
		return 0, fmt.Errorf("bytes %d to %d of a buffer of %d", offset, offset+n, b.bytes)
	}
	return b.addr + uint64(offset), nil
}

// Pinned is memory of the host that devices read and write by themselves: a copy from or to
// it goes on while the program does. It is not Go's, so it does not move and is not freed
// by itself.
type Pinned struct {
	dev   *Device
	p     unsafe.Pointer
	bytes []byte
	freed atomic.Bool
}

// AllocPinned gives memory of the host that any device of the process may copy from and to.
func (d *Device) AllocPinned(bytes int) (*Pinned, error) {
	h := &Pinned{dev: d}
	if bytes < 0 {
		return nil, d.fail(errors.New("there is no memory of negative size"), "cuMemHostAlloc of %d bytes", bytes)
	}
	if bytes > 0 {
		p, err := drv.HostAlloc(d.ctx, bytes)
		if err != nil {
			return nil, d.fail(err, "cuMemHostAlloc of %d bytes", bytes)
		}
		h.p, h.bytes = p, unsafe.Slice((*byte)(p), bytes)
	}
	d.live.pinned.Add(1)
	d.live.pinnedBytes.Add(int64(bytes))
	return h, nil
}

// Bytes is the memory. It must not be used after Free, nor while a copy is under way.
func (h *Pinned) Bytes() []byte { return h.bytes }

// Free gives the memory back; no copy from or to it may be under way. To free it twice is
// an error.
func (h *Pinned) Free() error {
	d, n := h.dev, len(h.bytes)
	if h.freed.Swap(true) {
		return d.fail(errors.New("it was freed before"), "cuMemFreeHost of %d bytes", n)
	}
	d.live.pinned.Add(-1)
	d.live.pinnedBytes.Add(-int64(n))
	if n == 0 {
		return nil
	}
	return d.fail(drv.HostFree(d.ctx, h.p), "cuMemFreeHost of %d bytes", n)
}

// part is where n bytes of h lie from an offset on.
func (h *Pinned) part(offset, n int) (unsafe.Pointer, error) {
	if h.freed.Load() {
		return nil, fmt.Errorf("the pinned memory of %d bytes was freed", len(h.bytes))
	}
	if offset < 0 || n < 0 || offset > len(h.bytes)-n {
		return nil, fmt.Errorf("bytes %d to %d of pinned memory of %d", offset, offset+n, len(h.bytes))
	}
	return unsafe.Add(h.p, offset), nil
}

// Number is what kernels compute with.
type Number interface {
	~int8 | ~uint8 | ~int16 | ~uint16 | ~int32 | ~uint32 | ~int64 | ~uint64 | ~float32 | ~float64
}

// AsBytes is the memory of x, for copies.
func AsBytes[T Number](x []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(*new(T))))
}

// As sees pinned memory as numbers; bytes that do not make up one are left out.
func As[T Number](b []byte) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(*new(T))))
}
