//go:build sim

package sim_test

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/lockstep-ml/lockstep/gpu/sim/internal/harness"
)

// TestMemory: how much there is, where it is refused, and what lies between.
func TestMemory(t *testing.T) {
	r := start(t, 0)
	free := func() uint64 {
		p, b := harness.Alloc(16)
		defer harness.Free(p)
		r.must("cuMemGetInfo_v2", p, p+8)
		return binary.LittleEndian.Uint64(b)
	}
	all := free()
	a := r.alloc(1000)
	if free() >= all {
		t.Error("an allocation takes nothing")
	}
	p, _ := harness.Alloc(8)
	r.want(outOfMemory, "cuMemAlloc_v2", p, 1<<40)
	r.want(invalidValue, "cuMemAlloc_v2", p, 0)
	// What was freed is used again when there is no other room, and what was freed last is
	// used again last.
	for range 52 {
		r.must("cuMemFree_v2", r.alloc(int(all)/8))
	}
	r.freedLast(int(all) / 64)
	b := r.alloc(int(all) / 4)
	r.must("cuMemsetD32_v2", b, 0x01020304, 64)
	if got := r.download(b, 8); !bytes.Equal(got, []byte{4, 3, 2, 1, 4, 3, 2, 1}) {
		t.Errorf("filled: %v", got)
	}
	r.must("cuMemFree_v2", b)
	r.must("cuMemFree_v2", a)
	if free() != all {
		t.Errorf("%d of %d bytes are free when all was freed", free(), all)
	}
	// Copies of parts of words keep the rest.
	c := r.upload([]byte("0123456789"))
	r.write(c+3, []byte("abc"))
	if got := string(r.download(c, 10)); got != "012abc6789" {
		t.Errorf("%q", got)
	}
	r.want(invalidValue, "cuMemcpyDtoH_v2", p, c, 11)
	r.clean()
}

// TestContexts: a context of a device is there until all who took it have given it back; it
// ends when all of it has run, and takes with it what is its own.
func TestContexts(t *testing.T) {
	r := start(t, 0)
	x := r.upload([]byte("sixteen letters."))
	r.enter() // a second time
	r.must("cuDevicePrimaryCtxRelease_v2", 0)
	r.must("cuCtxSynchronize")

	current := func() uint64 { return r.out(func(p uint64) { r.must("cuCtxGetCurrent", p) }) }
	first := current()
	r.want(invalidContext, "cuCtxDestroy_v2", first) // it is the device's
	second := r.out(func(p uint64) { r.must("cuCtxCreate_v2", p, 0, 0) })
	r.must("cuCtxPushCurrent_v2", first)
	if current() != first {
		t.Error("a context that was pushed is not current")
	}
	if r.must("cuCtxPopCurrent_v2", 0); current() != second {
		t.Error("a context that was popped is current")
	}
	y := r.alloc(100)
	r.must("cuMemcpyDtoDAsync_v2", y, x, 16, 0)
	r.must("cuMemcpyDtoDAsync_v2", x+8, y, 8, 0)
	r.must("cuCtxDestroy_v2", second)
	r.found("leak", "device=0: 1 allocations of 100 bytes")
	if got := string(r.download(x, 16)); got != "sixteen sixteen " {
		t.Errorf("%q", got)
	}
	p, _ := harness.Alloc(16)
	r.want(invalidValue, "cuMemcpyDtoH_v2", p, y, 4)
	r.must("cuMemGetAddressRange_v2", p, p+8, x+15)
	r.want(500, "cuMemGetAddressRange_v2", p, p+8, x+16)
	r.want(invalidValue, "cuPointerGetAttribute", p, 2, p) // of memory that the driver does not know

	// A variable is its module's.
	name, m := cstring("table"), r.module(header+".visible .global .align 4 .u32 table[4] = {1, 2, 3, 4};\n")
	table := r.out(func(p uint64) { r.must("cuModuleGetGlobal_v2", p, 0, m, name) })
	r.want(invalidValue, "cuMemFree_v2", table)
	if got := toWords(r.download(table, 16)); got[3] != 4 {
		t.Errorf("%v", got)
	}
	r.must("cuModuleUnload", m)
	r.want(invalidValue, "cuMemcpyDtoH_v2", p, table, 4)
}

// TestEnded: with a context its streams, events and modules end, and a module when what was
// launched of it has run; a function is launched in its own context alone.
func TestEnded(t *testing.T) {
	r := start(t, 0)
	m := r.module(ptx(t, "bugs"))
	x, y := r.upload(floats(1, 2, 3, 4)), r.alloc(16)
	r.launch(r.function(m, "scale"), dim{1}, dim{64}, 0, 0, x, y, 4)
	r.must("cuModuleUnload", m)
	if got := toFloats(r.download(y, 16)); got[3] != 8 {
		t.Errorf("%v", got)
	}
	r.want(invalidHandle, "cuModuleUnload", m)

	m = r.module(ptx(t, "bugs"))
	f, s, e := r.function(m, "scale"), r.stream(), r.event()
	other := start(t, 1)
	if code := other.launch(f, dim{1}, dim{64}, 0, 0, x, y, 4); code != invalidHandle {
		t.Errorf("another context's function: error %d", code)
	}
	r.enter()
	r.must("cuDevicePrimaryCtxReset_v2", 0)
	r.enter()
	r.want(invalidHandle, "cuStreamSynchronize", s)
	r.want(invalidHandle, "cuEventSynchronize", e)
	r.want(invalidHandle, "cuModuleUnload", m)
	if code := r.launch(f, dim{1}, dim{64}, 0, 0, x, y, 4); code != invalidHandle {
		t.Errorf("a function that has ended: error %d", code)
	}
}

// freedLast frees and allocates in a device of which all memory was in use before: no
// address comes again soon.
func (r *rig) freedLast(part int) {
	r.Helper()
	var before []uint64
	for range 24 {
		d := r.alloc(part)
		if slices.Contains(before, d) {
			r.Fatalf("0x%x was freed among the last %d and is used again", d, len(before))
		}
		before = append(before, d)
		r.must("cuMemFree_v2", d)
	}
}
