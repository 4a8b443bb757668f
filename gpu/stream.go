//go:build cuda

package gpu

import (
	"fmt"
	"math"

	"gorgonia.org/cu"

	"github.com/lockstep-ml/lockstep/gpu/internal/drv"
)

// Stream is a queue of work for a device, which is done in order. Work of two streams has
// no order but by events. An error of work that a stream was given may be reported by any
// later call.
type Stream struct {
	dev *Device
	s   cu.Stream
	h   drv.Stream
}

// NewStream makes a stream. It does not wait for the driver's default stream, nor that for
// it.
func (d *Device) NewStream() (*Stream, error) {
	s := &Stream{dev: d}
	err := d.in(func() (err error) {
		s.s, err = cu.MakeStream(cu.NonBlocking)
		return err
	})
	if err != nil {
		return nil, d.fail(err, "cuStreamCreate")
	}
	s.h = drv.Stream(handle(s.s))
	d.live.streams.Add(1)
	return s, nil
}

// Device is whose work the stream holds.
func (s *Stream) Device() *Device { return s.dev }

// Close waits for the stream's work and ends it. It is called once.
func (s *Stream) Close() error {
	s.dev.live.streams.Add(-1)
	err := s.Sync()
	return Join(err, s.dev.fail(s.dev.in(s.s.Destroy), "cuStreamDestroy"))
}

// Sync waits for the work that the stream has been given.
func (s *Stream) Sync() error {
	return s.dev.fail(drv.StreamSync(s.dev.ctx, s.h), "cuStreamSynchronize")
}

// Idle reports whether the work that the stream has been given is done.
func (s *Stream) Idle() (bool, error) {
	return s.dev.ready(drv.StreamQuery(s.dev.ctx, s.h), "cuStreamQuery")
}

// ready makes of the answer to a query whether something is done.
func (d *Device) ready(err error, op string) (bool, error) {
	if err == NotReady {
		return false, nil
	}
	return err == nil, d.fail(err, "%s", op)
}

// Upload copies src to dst, from an offset on, and waits for it.
func (s *Stream) Upload(dst *Buffer, offset int, src []byte) error {
	p, err := s.own(dst, offset, len(src))
	if err == nil && len(src) > 0 {
		err = drv.Upload(s.dev.ctx, p, src, s.h)
	}
	if err == nil {
		return nil
	}
	return s.dev.fail(err, "copy of %d bytes to the device", len(src))
}

// Download copies from src, from an offset on, to dst, and waits for it.
func (s *Stream) Download(dst []byte, src *Buffer, offset int) error {
	p, err := s.own(src, offset, len(dst))
	if err == nil && len(dst) > 0 {
		err = drv.Download(s.dev.ctx, dst, p, s.h)
	}
	if err == nil {
		return nil
	}
	return s.dev.fail(err, "copy of %d bytes from the device", len(dst))
}

// UploadPinned copies n bytes of src, from one offset on, to dst, from another on. It does
// not wait: src must stay as it is until the stream has come there.
func (s *Stream) UploadPinned(dst *Buffer, to int, src *Pinned, from, n int) error {
	p, err := s.own(dst, to, n)
	q, err2 := src.part(from, n)
	if err = first(err, err2); err == nil && n > 0 {
		err = drv.UploadPinned(s.dev.ctx, p, q, n, s.h)
	}
	if err == nil {
		return nil
	}
	return s.dev.fail(err, "copy of %d pinned bytes to the device", n)
}

// DownloadPinned copies n bytes of src, from one offset on, to dst, from another on. It does
// not wait: dst is there when the stream has come there.
func (s *Stream) DownloadPinned(dst *Pinned, to int, src *Buffer, from, n int) error {
	p, err := s.own(src, from, n)
	q, err2 := dst.part(to, n)
	if err = first(err, err2); err == nil && n > 0 {
		err = drv.DownloadPinned(s.dev.ctx, q, p, n, s.h)
	}
	if err == nil {
		return nil
	}
	return s.dev.fail(err, "copy of %d bytes from the device to pinned memory", n)
}

// Copy copies n bytes of src, from one offset on, to dst, from another on: within a device,
// or between two, whether these have access to each other's memory or not. One of the two
// devices should be the stream's. It does not wait.
func (s *Stream) Copy(dst *Buffer, to int, src *Buffer, from, n int) error {
	p, err := dst.part(to, n)
	q, err2 := src.part(from, n)
	err = first(err, err2)
	switch {
	case err != nil || n == 0:
	case dst.dev.same(src.dev) && dst.dev.same(s.dev):
		err = drv.Copy(s.dev.ctx, p, q, n, s.h)
	default:
		err = drv.CopyPeer(s.dev.ctx, p, dst.dev.ctx, q, src.dev.ctx, n, s.h)
	}
	if err == nil {
		return nil
	}
	return s.dev.fail(err, "copy of %d bytes from device %d to device %d", n, src.dev.Index, dst.dev.Index)
}

// Fill sets n bytes of dst, from an offset on, to v. It does not wait.
func (s *Stream) Fill(dst *Buffer, offset int, v byte, n int) error {
	p, err := s.own(dst, offset, n)
	if err == nil && n > 0 {
		err = drv.Fill8(s.dev.ctx, p, v, n, s.h)
	}
	if err == nil {
		return nil
	}
	return s.dev.fail(err, "cuMemsetD8Async of %d bytes", n)
}

// Fill32 sets n words of 4 bytes of dst, from an offset in bytes on that is a multiple of
// 4, to v. It does not wait.
func (s *Stream) Fill32(dst *Buffer, offset int, v uint32, n int) error {
	p, err := s.own(dst, offset, 4*min(max(n, -1), math.MaxInt/4)) // more is beyond any buffer
	if err == nil && offset%4 != 0 {
		err = fmt.Errorf("offset %d is not a multiple of 4", offset)
	}
	if err == nil && n > 0 {
		err = drv.Fill32(s.dev.ctx, p, v, n, s.h)
	}
	if err == nil {
		return nil
	}
	return s.dev.fail(err, "cuMemsetD32Async of %d words", n)
}

// own is the address of a part of a buffer that must be on the stream's device.
func (s *Stream) own(b *Buffer, offset, n int) (uint64, error) {
	if !b.dev.same(s.dev) {
		return 0, fmt.Errorf("the buffer is on %s", b.dev)
	}
	return b.part(offset, n)
}

// first is the first error that is one.
func first(a, b error) error {
	if a != nil {
		return a
	}
	return b
}
