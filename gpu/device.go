//go:build cuda

package gpu

import (
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/lockstep-ml/lockstep/gpu/internal/drv"
)

// Device is a GPU that was opened. Info says which.
type Device struct {
	Info
	dev  cu.Device
	ctx  drv.Context
	live live
}

// live counts what was made on a device and is not gone.
type live struct{ buffers, bufferBytes, pinned, pinnedBytes, streams, events, modules atomic.Int64 }

// Live says what was made on a device and is not gone.
type Live struct{ Buffers, BufferBytes, Pinned, PinnedBytes, Streams, Events, Modules int64 }

// String lists what there is; empty if nothing.
func (l Live) String() string {
	var s []string
	add := func(n int64, what string) {
		if n != 0 {
			s = append(s, fmt.Sprintf("%d %s", n, what))
		}
	}
	add(l.Buffers, fmt.Sprintf("buffers of %d bytes", l.BufferBytes))
	add(l.Pinned, fmt.Sprintf("pinned of %d bytes", l.PinnedBytes))
	add(l.Streams, "streams")
	add(l.Events, "events")
	add(l.Modules, "modules")
	return strings.Join(s, ", ")
}

// Live says what was made on the device and is not gone.
func (d *Device) Live() Live {
	l := &d.live
	return Live{l.buffers.Load(), l.bufferBytes.Load(), l.pinned.Load(), l.pinnedBytes.Load(), l.streams.Load(), l.events.Load(), l.modules.Load()}
}

// A handle of gorgonia.org/cu is a structure of one pointer, or this does not compile.
const pointer = unsafe.Sizeof(uintptr(0))

var (
	_ [pointer - unsafe.Sizeof(cu.CUContext{})]struct{}
	_ [pointer - unsafe.Sizeof(cu.Stream{})]struct{}
	_ [pointer - unsafe.Sizeof(cu.Event{})]struct{}
	_ [pointer - unsafe.Sizeof(cu.Function{})]struct{}
	_ [unsafe.Sizeof(cu.CUContext{}) - pointer]struct{}
	_ [unsafe.Sizeof(cu.Stream{}) - pointer]struct{}
	_ [unsafe.Sizeof(cu.Event{}) - pointer]struct{}
	_ [unsafe.Sizeof(cu.Function{}) - pointer]struct{}
)

// handle is the driver's pointer in a handle of gorgonia.org/cu.
func handle[T cu.CUContext | cu.Stream | cu.Event | cu.Function](h T) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&h))
}

// in runs f, which calls functions of gorgonia.org/cu, in the device's context: on one
// thread, as it is the thread that has a context.
func (d *Device) in(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := drv.Use(d.ctx); err != nil {
		return err
	}
	return f()
}

// MemInfo says how much memory of the device is free, for any program, and how much it has.
func (d *Device) MemInfo() (free, total uint64, err error) {
	err = d.in(func() error {
		f, t, err := cu.MemInfo()
		free, total = uint64(f), uint64(t)
		return err
	})
	return free, total, d.fail(err, "cuMemGetInfo")
}

// Sync waits for everything on the device that this process started.
func (d *Device) Sync() error { return d.fail(drv.Sync(d.ctx), "cuCtxSynchronize") }

// same reports whether two devices are one, opened twice or not.
func (d *Device) same(other *Device) bool { return d.ctx == other.ctx }

// CanAccess reports whether kernels of d can be let use memory of peer. A copy between the
// two works in either case; without access it goes through the host.
func (d *Device) CanAccess(peer *Device) (bool, error) {
	if d.same(peer) {
		return true, nil
	}
	can, err := d.dev.CanAccessPeer(peer.dev)
	return can != 0, d.fail(err, "cuDeviceCanAccessPeer of device %d", peer.Index)
}

// EnablePeer lets kernels of d use memory of peer, from now on. It may be called again.
func (d *Device) EnablePeer(peer *Device) error {
	if d.same(peer) {
		return nil
	}
	return d.fail(drv.EnablePeer(d.ctx, peer.ctx), "cuCtxEnablePeerAccess of device %d", peer.Index)
}

// Close gives the device back. Nothing of it may be used from now on. The error says what
// was made on it and not freed; the driver frees that, unless the device is open twice.
func (d *Device) Close() error {
	var leak error
	if l := d.Live().String(); l != "" {
		leak = d.fail(fmt.Errorf("not freed: %s", l), "close")
	}
	err := d.dev.ReleasePrimaryCtx()
	drv.Forget()
	return Join(leak, d.fail(err, "cuDevicePrimaryCtxRelease"))
}

// Close closes devices, all of them.
func Close(devices []*Device) error {
	var errs []error
	for _, d := range devices {
		errs = append(errs, d.Close())
	}
	return Join(errs...)
}
