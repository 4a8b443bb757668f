//go:build cuda

package gpu

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"

	"gorgonia.org/cu"

	"github.com/lockstep-ml/lockstep/gpu/internal/drv"
	"github.com/lockstep-ml/lockstep/gpu/internal/fakedriver"
)

// store is the kernel that the fake knows.
const store = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry store(\n\t.param .u64 store_param_0,\n\t.param .u32 store_param_1\n)\n{ ret; }\n"

// kit is one of each on a device.
type kit struct {
	d      *Device
	b      *Buffer
	h      *Pinned
	s      *Stream
	e      *Event
	m      *Module
	k      *Kernel
	params Params
}

func newKit(t testing.TB, d *Device) *kit {
	k := &kit{d: d}
	k.b, k.h = must(d.Alloc(256))(t), must(d.AllocPinned(256))(t)
	k.s, k.e = must(d.NewStream())(t), must(d.NewEvent(true))(t)
	k.m = must(d.Load(store))(t)
	k.k = must(k.m.Kernel("store"))(t)
	t.Cleanup(func() { ok(t, k.b.Free(), k.h.Free(), k.s.Close(), k.e.Close(), k.m.Close()) })
	return k
}

// TestContexts: each operation works on a thread that has another device's context, and in
// none: it does not matter on which thread a goroutine is. The fake refuses what is called
// in a wrong context.
func TestContexts(t *testing.T) {
	a, b := devices(t)
	x, y := newKit(t, a), newKit(t, b)
	for name, op := range map[string]func() error{
		"MemInfo":     func() error { _, _, err := a.MemInfo(); return err },
		"Sync":        a.Sync,
		"EnablePeer":  func() error { return a.EnablePeer(b) },
		"Alloc, Free": func() error { m, err := a.Alloc(16); return errors.Join(err, both(m, a, (*Buffer).Free)) },
		"AllocPinned": func() error { m, err := a.AllocPinned(16); return errors.Join(err, both(m, a, (*Pinned).Free)) },
		"NewStream":   func() error { m, err := a.NewStream(); return errors.Join(err, both(m, a, (*Stream).Close)) },
		"NewEvent":    func() error { m, err := a.NewEvent(false); return errors.Join(err, both(m, a, (*Event).Close)) },
		"Load":        func() error { m, err := a.Load(store); return errors.Join(err, both(m, a, (*Module).Close)) },
		"Kernel":      func() error { _, err := x.m.Kernel("store"); return err },
		"Resources":   func() error { _, err := x.k.Resources(); return err },
		"AllowShared": func() error { return x.k.AllowShared(64 << 10) },
		"Occupancy":   func() error { _, err := x.k.Occupancy(256, 0); return err },
		"Launch": func() error {
			return x.k.Launch(x.s, Dim{X: 2}, Dim{X: 32}, 0, x.params.Reset().Pointer(x.b, 0).U32(7))
		},
		"Upload":         func() error { return x.s.Upload(x.b, 0, make([]byte, 8)) },
		"Download":       func() error { return x.s.Download(make([]byte, 8), x.b, 0) },
		"UploadPinned":   func() error { return x.s.UploadPinned(x.b, 0, x.h, 0, 8) },
		"DownloadPinned": func() error { return x.s.DownloadPinned(x.h, 0, x.b, 0, 8) },
		"Copy":           func() error { return x.s.Copy(x.b, 0, x.b, 16, 8) },
		"Copy to a peer": func() error { return x.s.Copy(y.b, 0, x.b, 16, 8) },
		"Fill":           func() error { return x.s.Fill(x.b, 0, 1, 8) },
		"Fill32":         func() error { return x.s.Fill32(x.b, 0, 1, 8) },
		"Record":         func() error { return x.s.Record(x.e) },
		"Wait":           func() error { return x.s.Wait(x.e) },
		"Stream.Sync":    x.s.Sync,
		"Idle":           func() error { _, err := x.s.Idle(); return err },
		"Event.Sync":     x.e.Sync,
		"Happened":       func() error { _, err := x.e.Happened(); return err },
		"Since":          func() error { _, err := x.e.Since(x.e); return err },
	} {
		for _, other := range []drv.Context{b.ctx, nil, a.ctx} {
			err := make(chan error)
			go func() {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				err <- errors.Join(drv.Use(other), op())
			}()
			if err := <-err; err != nil {
				t.Errorf("%s on a thread with context %v: %v", name, other, err)
			}
		}
	}
}

// both puts the thread into another context before it frees what was made.
func both[T any](m *T, d *Device, free func(*T) error) error {
	if m == nil {
		return nil
	}
	return errors.Join(drv.Use(nil), free(m))
}

// TestManyGoroutines: two devices are used in turn by many goroutines, which Go moves
// between threads.
func TestManyGoroutines(t *testing.T) {
	a, b := devices(t)
	kits := []*kit{newKit(t, a), newKit(t, b)}
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			var params Params
			for i := range 100 {
				k := kits[(g+i)%2]
				if err := work(k, kits[(g+i+1)%2], r, &params); err != nil {
					t.Errorf("goroutine %d, turn %d: %v", g, i, err)
					return
				}
				runtime.Gosched()
			}
		})
	}
	wg.Wait()
}

// work is a kernel on one device whose result comes back by way of another.
func work(k, other *kit, r *rand.Rand, params *Params) (err error) {
	n, v := 1+r.IntN(100), r.Uint32()
	here, err := k.d.Alloc(4 * n)
	if err != nil {
		return err
	}
	there, err := other.d.Alloc(4 * n)
	if err != nil {
		return errors.Join(err, here.Free())
	}
	defer func() { err = errors.Join(err, here.Free(), there.Free()) }()
	done, err := k.d.NewEvent(false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done.Close()) }()
	got := make([]uint32, n)
	if err := errors.Join(
		k.k.Launch(k.s, Dim{X: n}, Dim{X: 1}, 0, params.Reset().Pointer(here, 0).U32(v)),
		k.s.Copy(there, 0, here, 0, 4*n),
		k.s.Record(done), done.Sync(),
		other.s.Download(AsBytes(got), there, 0)); err != nil {
		return err
	}
	for i := range got {
		if got[i] != v {
			return fmt.Errorf("word %d is %x, want %x", i, got[i], v)
		}
	}
	return nil
}

// TestContextIsSetOnce: a thread that stays with a device is given its context once.
func TestContextIsSetOnce(t *testing.T) {
	a, b := devices(t)
	x, y := newKit(t, a), newKit(t, b)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	sets := func() int { return must(a.dev.Attribute(cu.DeviceAttribute(fakedriver.Sets)))(t) }
	ok(t, x.s.Sync())
	before := sets()
	for range 10 {
		ok(t, x.s.Fill(x.b, 0, 1, 8), x.s.Record(x.e), x.s.Sync())
	}
	if got := sets() - before; got != 0 {
		t.Errorf("the context was set %d times for one device", got)
	}
	for range 10 {
		ok(t, x.s.Sync(), y.s.Sync())
	}
	if got := sets() - before; got != 19 {
		t.Errorf("the context was set %d times for two devices in turn 10 times, want 19", got)
	}
}

// TestReopened: a device that was closed and opened again has another context, which may lie
// where the first one was; no thread takes the one for the other.
func TestReopened(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for range 3 {
		d := must(Open(Choice{Indices: []int{0}}))(t)
		b, err := d[0].Alloc(8)
		if err != nil {
			t.Fatal(err)
		}
		ok(t, b.Free(), Close(d))
	}
}

// TestLeaks: what was not freed is said when a device is closed.
func TestLeaks(t *testing.T) {
	d := must(Open(Choice{Indices: []int{0}}))(t)[0]
	b, h := must(d.Alloc(40))(t), must(d.AllocPinned(24))(t)
	s, e, m := must(d.NewStream())(t), must(d.NewEvent(false))(t), must(d.Load(store))(t)
	must(d.Alloc(2))(t)
	want := "close on device 0 (Fake 0, 0000:1a:00.0): not freed: 2 buffers of 42 bytes, 1 pinned of 24 bytes, 1 streams, 1 events, 1 modules"
	again := must(Open(Choice{Indices: []int{0}}))(t)[0] // keeps the context
	if err := d.Close(); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	ok(t, b.Free(), h.Free(), s.Close(), e.Close(), m.Close(), again.Close())
	if got := d.Live(); got != (Live{Buffers: 1, BufferBytes: 2}) {
		t.Errorf("after all but one was freed: %+v", got)
	}
}

// TestErrors: operation, device and cause are in every error, and what is wrong with the
// arguments is found before the driver sees them.
func TestErrors(t *testing.T) {
	a, b := devices(t)
	x, y := newKit(t, a), newKit(t, b)
	freed := must(a.Alloc(4))(t)
	ok(t, freed.Free())
	gone := must(a.AllocPinned(4))(t)
	ok(t, gone.Free())
	var p Params
	for _, c := range []struct {
		err   error
		is    error
		words string
	}{
		{errOf(b.Alloc(2 << 20)), OutOfMemory, "cuMemAlloc of 2097152 bytes on device 1 (Fake 1, 0000:1b:00.0): out of memory"},
		{errOf(a.Alloc(-1)), nil, "cuMemAlloc of -1 bytes on device 0 (Fake 0, 0000:1a:00.0): there is no memory of negative size"},
		{errOf(a.AllocPinned(-1)), nil, "cuMemHostAlloc of -1 bytes on device 0"},
		{freed.Free(), nil, "cuMemFree of 4 bytes on device 0 (Fake 0, 0000:1a:00.0): it was freed before"},
		{gone.Free(), nil, "cuMemFreeHost of 4 bytes on device 0 (Fake 0, 0000:1a:00.0): it was freed before"},
		{x.s.Upload(freed, 0, make([]byte, 4)), nil, "copy of 4 bytes to the device on device 0 (Fake 0, 0000:1a:00.0): the buffer of 4 bytes was freed"},
		{x.s.UploadPinned(x.b, 0, gone, 0, 4), nil, "the pinned memory of 4 bytes was freed"},
		{x.s.Upload(x.b, 250, make([]byte, 8)), nil, "bytes 250 to 258 of a buffer of 256"},
		{x.s.Download(make([]byte, 8), x.b, -1), nil, "bytes -1 to 7 of a buffer of 256"},
		{x.s.DownloadPinned(x.h, 255, x.b, 0, 2), nil, "bytes 255 to 257 of pinned memory of 256"},
		{x.s.Copy(x.b, 0, x.b, 257, 0), nil, "copy of 0 bytes from device 0 to device 0 on device 0 (Fake 0, 0000:1a:00.0): bytes 257 to 257"},
		{x.s.Copy(y.b, 0, x.b, 0, -1), nil, "copy of -1 bytes from device 0 to device 1"},
		{x.s.Fill(y.b, 0, 0, 4), nil, "cuMemsetD8Async of 4 bytes on device 0 (Fake 0, 0000:1a:00.0): the buffer is on device 1"},
		{x.s.Fill32(x.b, 2, 0, 4), nil, "offset 2 is not a multiple of 4"},
		{x.s.Fill32(x.b, 0, 0, 65), nil, "bytes 0 to 260 of a buffer of 256"},
		{x.s.Record(y.e), drv.InvalidContext, "cuEventRecord on device 0 (Fake 0, 0000:1a:00.0): invalid context"},
		{errOf(a.Load("garbage")), drv.Result(218), "cuModuleLoadDataEx on device 0 (Fake 0, 0000:1a:00.0): invalid PTX:\nptxas: error at garbage"},
		{errOf(a.Load(".entry f(.param .odd p) {}")), nil, `load of PTX on device 0 (Fake 0, 0000:1a:00.0): kernel f: parameter ".param .odd p" is not understood`},
		{errOf(x.m.Kernel("other")), NotFound, "cuModuleGetFunction of other on device 0 (Fake 0, 0000:1a:00.0): not found"},
		{x.k.AllowShared(1 << 20), InvalidValue, "cuFuncSetAttribute of store to 1048576 bytes of shared memory on device 0 (Fake 0, 0000:1a:00.0): invalid value"},
		{x.k.Launch(y.s, Dim{}, Dim{}, 0, p.Reset().U64(0).U32(0)), nil, "launch of store, 1x1x1 blocks of 1x1x1 threads, 0 bytes of shared memory on device 0 (Fake 0, 0000:1a:00.0): the stream is of device 1"},
		{x.k.Launch(x.s, Dim{}, Dim{}, 0, p.Reset().U64(0)), nil, "8 bytes of parameters, the kernel has 12"},
		{x.k.Launch(x.s, Dim{X: -1}, Dim{}, 0, p.Reset().U64(0).U32(0)), InvalidValue, "invalid value"},
		{x.k.Launch(x.s, Dim{X: 2, Y: 3}, Dim{X: 1025}, 0, p.Reset().Pointer(x.b, 0).U32(0)), InvalidValue, "launch of store, 2x3x1 blocks of 1025x1x1 threads, 0 bytes of shared memory on device 0 (Fake 0, 0000:1a:00.0): invalid value"},
		{x.k.Launch(x.s, Dim{X: 65}, Dim{}, 0, p.Reset().Pointer(x.b, 0).U32(0)), drv.Result(700), "illegal address"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.words) {
			t.Errorf("%v\nwant %s", c.err, c.words)
		}
		if c.is != nil && !errors.Is(c.err, c.is) {
			t.Errorf("%v is not %v", c.err, c.is)
		}
	}
	if got := a.Live().Buffers; got != 1 {
		t.Errorf("%d buffers are counted, want 1: what failed made none", got)
	}
}

func errOf[T any](_ T, err error) error { return err }

// TestResults: errors of gorgonia.org/cu are the driver's numbers, however wrapped.
func TestResults(t *testing.T) {
	for _, c := range []struct {
		err  error
		want error
	}{
		{cu.OutOfMemory, OutOfMemory},
		{fmt.Errorf("wrapped: %w", cu.NotSupported), NotSupported},
		{drv.NotReady, NotReady},
	} {
		if got := resultOf(c.err); got != c.want {
			t.Errorf("%v became %v, want %v", c.err, got, c.want)
		}
	}
	plain := errors.New("plain")
	if got := resultOf(plain); got != plain {
		t.Errorf("an error of another kind became %v", got)
	}
	if got := Result(12345).Error(); !strings.Contains(got, "12345") {
		t.Errorf("an unknown result: %s", got)
	}
}

// TestCopies: what was copied is what was there, at every offset and in streams that do
// nothing until something waits.
func TestCopies(t *testing.T) {
	a, b := devices(t)
	x, y := newKit(t, a), newKit(t, b)
	src := make([]byte, 100)
	for i := range src {
		src[i] = byte(i)
	}
	want := bytes.Clone(src[:90])
	ok(t, x.s.Upload(x.b, 7, src[:90]))
	clear(src) // Upload has waited
	ok(t, x.s.Copy(x.b, 150, x.b, 7, 90), x.s.Copy(y.b, 30, x.b, 150, 90), x.s.Record(x.e))
	ok(t, y.s.Wait(x.e), y.s.DownloadPinned(y.h, 1, y.b, 30, 90))
	if bytes.Equal(y.h.Bytes()[1:91], want) {
		t.Error("the fake did not put the copy off: it shows nothing")
	}
	if idle, err := y.s.Idle(); idle || err != nil {
		t.Errorf("the stream is idle: %v, %v", idle, err)
	}
	ok(t, y.s.Sync())
	if !bytes.Equal(y.h.Bytes()[1:91], want) || y.h.Bytes()[0] == 0 {
		t.Errorf("% x", y.h.Bytes()[:92])
	}
	if idle, err := y.s.Idle(); !idle || err != nil {
		t.Errorf("the stream is not idle: %v, %v", idle, err)
	}
	got := make([]byte, 90)
	ok(t, y.s.UploadPinned(y.b, 100, y.h, 1, 90), y.s.Fill(y.b, 101, 0xEE, 3), y.s.Fill32(y.b, 108, 0x04030201, 2), y.s.Download(got, y.b, 100))
	copy(want[1:], []byte{0xEE, 0xEE, 0xEE})
	copy(want[8:], []byte{1, 2, 3, 4, 1, 2, 3, 4})
	if !bytes.Equal(got, want) {
		t.Errorf("got  % x\nwant % x", got, want)
	}
}

// TestStreamClose: closing a stream waits for its work, also where the driver does not.
func TestStreamClose(t *testing.T) {
	a, _ := devices(t)
	x := newKit(t, a)
	s := must(a.NewStream())(t)
	ok(t, s.Fill(x.b, 0, 7, 256), s.DownloadPinned(x.h, 0, x.b, 0, 256))
	if x.h.Bytes()[255] == 7 {
		t.Error("the fake did not put the copy off: it shows nothing")
	}
	ok(t, s.Close())
	if want := bytes.Repeat([]byte{7}, 256); !bytes.Equal(x.h.Bytes(), want) {
		t.Errorf("after Close the stream has not done its work: % x", x.h.Bytes()[:8])
	}
}

// TestDeviceSync: it waits for all streams of the device.
func TestDeviceSync(t *testing.T) {
	a, _ := devices(t)
	x := newKit(t, a)
	ok(t, x.s.Fill(x.b, 0, 7, 256), x.s.DownloadPinned(x.h, 0, x.b, 0, 256), a.Sync())
	if x.h.Bytes()[255] != 7 {
		t.Errorf("after Sync the work is not done: % x", x.h.Bytes()[:8])
	}
}

// TestNothing: of no bytes there is nothing to do, and it is done.
func TestNothing(t *testing.T) {
	a, b := devices(t)
	x, y := newKit(t, a), newKit(t, b)
	none, empty, far := must(a.Alloc(0))(t), must(a.AllocPinned(0))(t), must(b.Alloc(0))(t)
	if none.Address() != 0 || none.Bytes() != 0 || len(empty.Bytes()) != 0 {
		t.Errorf("a buffer of nothing is at %x", none.Address())
	}
	ok(t, x.s.Upload(none, 0, nil), x.s.Download(nil, none, 0), x.s.UploadPinned(none, 0, empty, 0, 0), x.s.DownloadPinned(empty, 0, x.b, 256, 0),
		x.s.Copy(none, 0, x.b, 256, 0), x.s.Copy(far, 0, none, 0, 0), x.s.Fill(none, 0, 1, 0), x.s.Fill32(none, 0, 1, 0), y.s.Sync())
	ok(t, none.Free(), empty.Free(), far.Free())
}

// TestEvents: an event has happened when the work before it is done.
func TestEvents(t *testing.T) {
	a, _ := devices(t)
	x := newKit(t, a)
	end := must(a.NewEvent(true))(t)
	happened := func(e *Event) bool { return must(e.Happened())(t) }
	if !happened(x.e) {
		t.Error("an event that was not recorded has not happened")
	}
	ok(t, x.s.Record(x.e), x.s.Fill(x.b, 0, 9, 4), x.s.Record(end))
	if happened(end) {
		t.Error("an event happened before the work")
	}
	ok(t, end.Sync())
	if !happened(end) || !happened(x.e) {
		t.Error("an event has not happened after Sync")
	}
	if d := must(end.Since(x.e))(t); d.Microseconds() != 500 {
		t.Errorf("%v between two events", d)
	}
	ok(t, end.Close())
}

// TestPeers: access is given once or twice, and to oneself, and to who asked for it alone.
func TestPeers(t *testing.T) {
	a, b := devices(t)
	lets := func(d *Device) int { return must(d.dev.Attribute(cu.DeviceAttribute(fakedriver.Peers)))(t) }
	ok(t, a.EnablePeer(b), a.EnablePeer(b), a.EnablePeer(a))
	if x, y := lets(a), lets(b); x != 1<<1 || y != 0 {
		t.Errorf("%v uses memory of devices %b and %v of %b, want 10 and 0", a, x, b, y)
	}
	ok(t, b.EnablePeer(a))
	if x, y := lets(a), lets(b); x != 1<<1 || y != 1<<0 {
		t.Errorf("%v uses memory of devices %b and %v of %b, want 10 and 1", a, x, b, y)
	}
	for _, p := range []*Device{a, b} {
		if can, err := a.CanAccess(p); !can || err != nil {
			t.Errorf("access to %v: %v, %v", p, can, err)
		}
	}
	if free, total, err := a.MemInfo(); free != total || total != fakedriver.Memory || err != nil {
		t.Errorf("%d of %d bytes are free, %v", free, total, err)
	}
	if n := must(b.dev.Attribute(cu.DeviceAttribute(fakedriver.Allocated)))(t); n != 0 {
		t.Errorf("tests left %d bytes on %v", n, b)
	}
}

// TestKernel: a launch has the parameters and sizes that it was given, and allocates nothing.
func TestKernel(t *testing.T) {
	a, _ := devices(t)
	x := newKit(t, a)
	if r := must(x.k.Resources())(t); r != (Resources{Registers: 14, Local: 13, Shared: 11, MaxThreads: 10}) {
		t.Errorf("%+v", r)
	}
	if n := must(x.k.Occupancy(256, 64<<10))(t); n != 7 {
		t.Errorf("%d blocks at once", n)
	}
	ok(t, x.s.Fill(x.b, 0, 0, 256))
	ok(t, x.k.Launch(x.s, Dim{2, 1, 3}, Dim{1, 2, 2}, 48<<10, x.params.Reset().Pointer(x.b, 4).U32(5)))
	x.params.Reset().U64(0).U32(77) // they were copied
	got := make([]uint32, 64)
	ok(t, x.s.Download(AsBytes(got), x.b, 0))
	for i, v := range got {
		if want := uint32(5); i == 0 || i > 24 {
			want = 0
			if v != want {
				t.Errorf("word %d is %d", i, v)
			}
		} else if v != want {
			t.Errorf("word %d is %d, want %d", i, v, want)
		}
	}
	if err := x.k.Launch(x.s, Dim{}, Dim{}, 64<<10, x.params.Reset().Pointer(x.b, 0).U32(0)); !errors.Is(err, InvalidValue) {
		t.Errorf("64 KB of shared memory, not allowed yet: %v", err)
	}
	ok(t, x.k.AllowShared(64<<10), x.k.Launch(x.s, Dim{}, Dim{}, 64<<10, &x.params))
}

// TestSteady: what a step does again and again allocates nothing.
func TestSteady(t *testing.T) {
	a, b := devices(t)
	x, y := newKit(t, a), newKit(t, b)
	n := testing.AllocsPerRun(100, func() {
		ok(t, x.k.Launch(x.s, Dim{X: 2}, Dim{X: 8}, 1024, x.params.Reset().Pointer(x.b, 0).U32(1<<20)))
		var buf [16]byte // it may stay on the stack
		ok(t, x.s.Upload(x.b, 0, buf[:]))
		ok(t, x.s.Download(buf[:], x.b, 0))
		ok(t, x.s.UploadPinned(x.b, 0, x.h, 0, 256))
		ok(t, x.s.DownloadPinned(x.h, 0, x.b, 0, 256))
		ok(t, x.s.Copy(x.b, 0, x.b, 128, 16))
		ok(t, x.s.Copy(y.b, 0, x.b, 128, 16))
		ok(t, x.s.Fill(x.b, 0, 1, 256))
		ok(t, x.s.Fill32(x.b, 0, 1, 64))
		ok(t, x.s.Record(x.e))
		ok(t, y.s.Wait(x.e))
		ok(t, x.e.Sync())
		ok(t, x.s.Sync())
		ok(t, y.s.Sync())
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkLaunch(b *testing.B) {
	a, _ := devices(b)
	x := newKit(b, a)
	for i := 0; b.Loop(); i++ {
		ok(b, x.k.Launch(x.s, Dim{X: 1}, Dim{X: 1}, 0, x.params.Reset().Pointer(x.b, 0).U32(1)))
		if i%64 == 0 {
			ok(b, x.s.Sync())
		}
	}
}
