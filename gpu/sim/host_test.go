//go:build sim

package sim_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/gpu/sim/internal/harness"
)

// nonBlocking is a stream that does not wait for the default one.
func (r *rig) stream() uint64 {
	r.Helper()
	return r.out(func(p uint64) { r.must("cuStreamCreate", p, 1) })
}

func (r *rig) event() uint64 {
	r.Helper()
	return r.out(func(p uint64) { r.must("cuEventCreate", p, 2) })
}

func (r *rig) pinned(n int) (uint64, []byte) {
	r.Helper()
	p := r.out(func(p uint64) { r.must("cuMemHostAlloc", p, uint64(n), 0) })
	return p, harness.Bytes(p, n)
}

// TestUseAfterFree: a kernel that has a pointer to what was freed, whether or not it could
// have been given out again.
func TestUseAfterFree(t *testing.T) {
	for name, c := range map[string]struct {
		freed func(r *rig) (x, y uint64)
		says  string
	}{
		"read": {func(r *rig) (uint64, uint64) {
			x, y := r.upload(floats(random(64, 1)...)), r.alloc(256)
			r.must("cuMemFree_v2", x)
			return x, y
		}, "reads 4 bytes .* in 256 bytes that were freed"},
		"write": {func(r *rig) (uint64, uint64) {
			x, y := r.upload(floats(random(64, 1)...)), r.alloc(256)
			r.must("cuMemFree_v2", y)
			return x, y
		}, "writes 4 bytes .* in 256 bytes that were freed"},
		"the first of many": {func(r *rig) (uint64, uint64) {
			x, y := r.upload(make([]byte, 1<<20-256)), r.alloc(256)
			r.must("cuMemFree_v2", x)
			return x, y
		}, "thread=0,0,0 .* reads 4 bytes .* in 1048320 bytes that were freed"},
		"the last of many": {func(r *rig) (uint64, uint64) {
			x, y := r.upload(make([]byte, 1<<20-256)), r.alloc(256)
			r.must("cuMemFree_v2", x)
			return x + 1<<20 - 512, y
		}, "thread=0,0,0 .* reads 4 bytes .* in 1048320 bytes that were freed"},
		"another allocation since": {func(r *rig) (uint64, uint64) {
			x, y := r.upload(floats(random(64, 1)...)), r.alloc(256)
			r.must("cuMemFree_v2", y)
			r.alloc(256)
			return x, y
		}, "writes 4 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, 0)
			x, y := c.freed(r)
			if e := r.run(r.function(r.module(ptx(t, "bugs")), "scale"), dim{1}, dim{64}, 0, x, y, 64); e != illegalAddress {
				t.Errorf("error %d", e)
			}
			r.found("use-after-free", c.says)
		})
	}
	r := start(t, 0)
	x := r.alloc(64)
	r.must("cuMemFree_v2", x)
	r.want(invalidValue, "cuMemFree_v2", x)
	r.want(invalidValue, "cuMemsetD8_v2", x, 0, 64)
}

// TestOtherDevice: kernels that were not let use memory of another device do not; copies do.
func TestOtherDevice(t *testing.T) {
	for _, c := range []struct {
		kernel, says string
		x, y         bool // which is the other device's
	}{{"scale", "reads 4 bytes .* memory of device 1", true, false}, {"scale", "writes 4 bytes .* memory of device 1", false, true}, {"add_one", "writes 4 bytes .* memory of device 1", false, true}} {
		other := start(t, 1)
		there := other.upload(floats(random(64, 1)...))
		r := start(t, 0)
		here := r.upload(floats(random(64, 1)...))
		x, y := here, here
		if c.x {
			x = there
		}
		if c.y {
			y = there
		}
		if e := r.run(r.function(r.module(ptx(t, "bugs")), c.kernel), dim{1}, dim{64}, 0, x, y, 64); e != illegalAddress {
			t.Errorf("%s: error %d", c.kernel, e)
		}
		r.found("other-device", c.says)
	}
}

// TestUnordered: work of streams that nothing orders, and a host that does not wait.
func TestUnordered(t *testing.T) {
	const n = 64
	for name, c := range map[string]struct {
		class, says string
		do          func(r *rig, f, s1, s2, x, y uint64) int
	}{
		"host reads what a kernel will write": {"race", "scale.* has read|copy-to-host, which was queued later, has read", func(r *rig, f, s1, _, x, y uint64) int {
			r.write(y, floats(random(n, 2)...))
			r.launch(f, dim{1}, dim{n}, 0, s1, x, y, n)
			r.download(y, 4*n)
			return lib.Call("cuStreamSynchronize", s1)
		}},
		"host reads what a kernel changes in place": {"race", "writes .* which copy-to-host has read although it was queued later", func(r *rig, f, s1, s2, x, _ uint64) int {
			p, _ := r.pinned(4 * n)
			r.launch(f, dim{1}, dim{n}, 0, s1, x, x, n)
			r.must("cuMemcpyDtoHAsync_v2", p, x, 4*n, s2)
			r.must("cuStreamSynchronize", s2)
			return lib.Call("cuStreamSynchronize", s1)
		}},
		"host reads what a kernel changes, after another copy": {"race", "writes .* which copy-to-host has read although it was queued later", func(r *rig, f, s1, s2, x, y uint64) int {
			p, _ := r.pinned(4 * n)
			r.must("cuMemcpyDtoDAsync_v2", y, x, 4*n, s1)
			r.launch(f, dim{1}, dim{n}, 0, s1, y, x, n)
			r.must("cuMemcpyDtoHAsync_v2", p, x, 4*n, s2)
			r.must("cuStreamSynchronize", s2)
			return lib.Call("cuStreamSynchronize", s1)
		}},
		"host reads what was not written yet": {"uninitialised", "operation=copy-to-host device=0: reads memory that was not written", func(r *rig, f, s1, _, x, y uint64) int {
			r.launch(f, dim{1}, dim{n}, 0, s1, x, y, n)
			p, _ := harness.Alloc(4 * n)
			return lib.Call("cuMemcpyDtoH_v2", p, y, 4*n)
		}},
		"host writes what a kernel will read": {"race", "which copy-to-device has written although it was queued later", func(r *rig, f, s1, _, x, y uint64) int {
			r.launch(f, dim{1}, dim{n}, 0, s1, x, y, n)
			r.write(x, floats(random(n, 2)...))
			return lib.Call("cuStreamSynchronize", s1)
		}},
		"kernels without an event": {"race", "kernel scale, which was queued later, has read|kernel scale has read", func(r *rig, f, s1, s2, x, y uint64) int {
			z := r.upload(floats(random(n, 3)...))
			r.write(y, floats(random(n, 2)...))
			r.launch(f, dim{1}, dim{n}, 0, s1, x, y, n)
			r.launch(f, dim{1}, dim{n}, 0, s2, y, z, n)
			r.must("cuStreamSynchronize", s2)
			return lib.Call("cuStreamSynchronize", s1)
		}},
		"a fill without an event": {"race", "fill has written|fill, which was queued later, has written", func(r *rig, f, s1, s2, x, y uint64) int {
			r.launch(f, dim{1}, dim{n}, 0, s1, x, y, n)
			r.must("cuMemsetD8Async", y, 0, 4*n, s2)
			r.must("cuStreamSynchronize", s2)
			return lib.Call("cuStreamSynchronize", s1)
		}},
		"pinned memory is written before it was copied": {"host-access", "operation=copy-to-device device=0: the host changed pinned memory", func(r *rig, _, s1, _, x, _ uint64) int {
			p, b := r.pinned(4 * n)
			r.must("cuMemcpyHtoDAsync_v2", x, p, 4*n, s1)
			b[17] ^= 1
			return lib.Call("cuStreamSynchronize", s1)
		}},
		"pinned memory is written before it arrived": {"host-access", "operation=copy-to-host device=0: the host changed pinned memory", func(r *rig, _, s1, _, x, _ uint64) int {
			p, b := r.pinned(4 * n)
			r.must("cuMemcpyDtoHAsync_v2", p, x, 4*n, s1)
			b[0] = 7
			return lib.Call("cuStreamSynchronize", s1)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, 0)
			f := r.function(r.module(ptx(t, "bugs")), "scale")
			x, y := r.upload(floats(random(n, 1)...)), r.alloc(4*n)
			if e := c.do(r, f, r.stream(), r.stream(), x, y); e != assertion {
				t.Errorf("error %d", e)
			}
			r.found(c.class, c.says)
		})
	}
}

// TestOrdered: what events and waiting order is found to be well, on one device and over
// two.
func TestOrdered(t *testing.T) {
	const n = 64
	r := start(t, 0)
	f := r.function(r.module(ptx(t, "bugs")), "scale")
	x, y, z := r.upload(floats(random(n, 1)...)), r.alloc(4*n), r.alloc(4*n)
	s1, s2, e := r.stream(), r.stream(), r.event()
	r.want(success, "cuEventQuery", e)
	r.launch(f, dim{1}, dim{n}, 0, s1, x, y, n)
	r.must("cuEventRecord", e, s1)
	r.must("cuStreamWaitEvent", s2, e, 0)
	r.launch(f, dim{1}, dim{n}, 0, s2, y, z, n)
	r.want(notReady, "cuStreamQuery", s2)
	r.want(success, "cuStreamQuery", s2)
	r.want(success, "cuEventQuery", e)
	p, b := r.pinned(4 * n)
	r.must("cuMemcpyDtoHAsync_v2", p, z, 4*n, s2)
	if b[3] != 0xff {
		t.Error("an asynchronous copy arrived before anything waited")
	}
	r.must("cuStreamSynchronize", s2)
	for i, v := range toFloats(b) {
		if v != random(n, 1)[i]*4 {
			t.Fatalf("%d: %g", i, v)
		}
	}
	// The same buffers again: a ring of copies from and to pinned memory.
	for range 3 {
		r.must("cuMemcpyHtoDAsync_v2", x, p, 4*n, s1)
		r.launch(f, dim{1}, dim{n}, 0, s1, x, y, n)
		r.must("cuMemcpyDtoHAsync_v2", p, y, 4*n, s1)
	}
	r.must("cuEventRecord", e, s1)
	r.must("cuEventSynchronize", e)
	for i, v := range toFloats(b) {
		if v != random(n, 1)[i]*4*8 {
			t.Fatalf("%d: %g", i, v)
		}
	}
	// To the other device and back.
	other := start(t, 1)
	far := other.alloc(4 * n)
	farEvent, farStream := other.event(), other.stream()
	r.enter()
	r.must("cuEventRecord", e, s1)
	other.enter()
	r.must("cuStreamWaitEvent", farStream, e, 0)
	r.must("cuMemcpyPeerAsync", far, 0, y, 0, 4*n, farStream)
	r.must("cuEventRecord", farEvent, farStream)
	r.enter()
	r.must("cuStreamWaitEvent", s1, farEvent, 0)
	r.must("cuMemsetD32Async", y, 0, n, s1)
	r.must("cuMemcpyPeerAsync", z, 0, far, 0, 4*n, s1)
	r.must("cuStreamSynchronize", s1)
	if got := r.download(z, 4*n); !bytes.Equal(got, b) {
		t.Error("copied to the other device and back: not the same")
	}
	r.clean()
}

// TestLeaks: what a context still has when it ends.
func TestLeaks(t *testing.T) {
	for name, c := range map[string]struct {
		leave func(r *rig)
		says  string
	}{
		"memory":  {func(r *rig) { r.alloc(100); r.alloc(28) }, "2 allocations of 128 bytes, the first at 0x2"},
		"pinned":  {func(r *rig) { r.pinned(100) }, "100 bytes of pinned memory"},
		"streams": {func(r *rig) { r.stream() }, "1 streams"},
		"events":  {func(r *rig) { r.event() }, "1 events"},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, 0)
			c.leave(r)
			r.must("cuDevicePrimaryCtxReset_v2", 0)
			r.found("leak", "device=0: "+c.says)
		})
	}
	r := start(t, 0)
	r.must("cuMemFree_v2", r.alloc(100))
	p, _ := r.pinned(8)
	r.must("cuMemFreeHost", p)
	r.must("cuStreamDestroy_v2", r.stream())
	r.must("cuEventDestroy_v2", r.event())
	r.module(ptx(t, "correct"))
	r.must("cuDevicePrimaryCtxRelease_v2", 0)
	r.clean()
	r.want(709, "cuCtxSynchronize")
}

// TestIdentity: nobody takes a simulated device for a real one.
func TestIdentity(t *testing.T) {
	r := start(t, 1)
	if v := lib.Call("lockstep_simulator"); v != 1 {
		t.Errorf("lockstep_simulator() = %d", v)
	}
	r.want(invalidValue, "lockstep_simulator_devices", 3) // after cuInit
	p, b := harness.Alloc(128)
	r.must("cuDeviceGetName", p, 128, 1)
	if name := string(bytes.TrimRight(b, "\x00")); !strings.Contains(name, "simulated") {
		t.Errorf("the name %q does not say so", name)
	}
	r.must("cuDeviceGetUuid", p, 1)
	r.must("cuDeviceGetUuid", p+16, 0)
	if bytes.Equal(b[:16], b[16:32]) || !bytes.HasPrefix(b, []byte("lockstep-sim")) {
		t.Errorf("UUIDs %q", b[:32])
	}
	r.must("cuDeviceGetPCIBusId", p, 128, 1)
	if !bytes.HasPrefix(b, []byte("FFFF:01:00.0\x00")) {
		t.Errorf("PCI address %q", b[:13])
	}
	r.want(101, "cuDeviceGetName", p, 128, 4)
	r.want(notSupported, "cuGraphCreate", p, 0)
	r.want(notSupported, "cuMemAllocManaged", p, 64, 1)
	r.must("cuCtxSetCurrent", 0)
	r.want(invalidContext, "cuMemAlloc_v2", p, 64)
}

// TestBadCalls: handles that are none, and launches that no device takes.
func TestBadCalls(t *testing.T) {
	r := start(t, 0)
	f := r.function(r.module(ptx(t, "correct")), "matmul")
	r.want(invalidHandle, "cuStreamSynchronize", 0x1234560)
	r.want(invalidHandle, "cuEventRecord", 0x1234560, 0)
	r.want(invalidHandle, "cuModuleUnload", 0x1234560)
	for _, c := range []struct{ grid, block dim }{{dim{0}, dim{1}}, {dim{1}, dim{0}}, {dim{1}, dim{512}}, {dim{1}, dim{1, 1, 65}}, {dim{1, 70000}, dim{1}}} {
		if e := r.launch(f, c.grid, c.block, 0, 0, uint64(0), uint64(0), uint64(0), 0, 0, 0); e != invalidValue {
			t.Errorf("%v: error %d", c, e)
		}
	}
	if e := r.launch(f, dim{1}, dim{1}, 0, 0, uint64(0)); e != invalidValue {
		t.Errorf("too few parameters: error %d", e)
	}
	p, _ := harness.Alloc(8)
	n := cstring("no such kernel")
	r.want(500, "cuModuleGetFunction", p, r.module(ptx(t, "correct")), n)
}
