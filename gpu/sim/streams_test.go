//go:build sim

package sim_test

import (
	"testing"

	"github.com/lockstep-ml/lockstep/gpu/sim/internal/harness"
)

// TestDefaultStream: a stream waits for what the default one had before, and that for what
// the others had, unless they are made not to.
func TestDefaultStream(t *testing.T) {
	const n = 64
	for name, c := range map[string]struct {
		flags uint64
		first bool // whether the default stream comes first
		want  int
		class string
	}{
		"the default stream, then another":             {0, true, success, ""},
		"another, then the default stream":             {0, false, success, ""},
		"the default stream, then one that waits not":  {1, true, assertion, "uninitialised"},
		"one that waits not, then the default stream.": {1, false, assertion, "uninitialised"},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, 0)
			f := r.function(r.module(ptx(t, "bugs")), "scale")
			x, y, z := r.upload(floats(random(n, 1)...)), r.alloc(4*n), r.alloc(4*n)
			s, none := r.out(func(p uint64) { r.must("cuStreamCreate", p, c.flags) }), r.stream()
			from, to := s, uint64(1) // which is another name of the default stream
			if c.first {
				from, to = 2, s // and another
			}
			r.launch(f, dim{1}, dim{n}, 0, from, x, y, n)
			r.launch(f, dim{1}, dim{n}, 0, to, y, z, n)
			// An event waits for its place in a stream, and for nothing that this does not.
			e := r.event()
			r.must("cuEventRecord", e, to)
			r.must("cuStreamWaitEvent", none, e, 0)
			r.want(c.want, "cuStreamSynchronize", none)
			if c.class != "" {
				r.found(c.class, "thread=0,0,0 .* reads global memory")
				return
			}
			for i, v := range toFloats(r.download(z, 4*n)) {
				if v != random(n, 1)[i]*4 {
					t.Fatalf("%d: %g", i, v)
				}
			}
			r.clean()
		})
	}
}

// TestManyOperations: a race is found however much ran between, up to what is remembered.
func TestManyOperations(t *testing.T) {
	for _, between := range []uint64{0, 100, 4000} {
		r := start(t, 0)
		f := r.function(r.module(ptx(t, "bugs")), "scale")
		x, y, z := r.upload(floats(random(64, 1)...)), r.alloc(256), r.alloc(4)
		s1, s2 := r.stream(), r.stream()
		r.launch(f, dim{1}, dim{64}, 0, s1, x, y, 64)
		r.must("cuMemsetD32Async", x+4*17, 0, 1, s2)
		for range between {
			r.must("cuMemsetD8Async", z, 0, 4, s2)
		}
		r.must("cuStreamSynchronize", s2)
		r.want(assertion, "cuStreamSynchronize", s1)
		r.found("race", "thread=17,0,0 .* reads global memory at 0x[0-9a-f]+, which fill has written although it was queued later")
	}
}

// TestManyBlocks: when the numbers of blocks begin again, after 8 million, it is still known
// what is initialised and allocated, and races are found as before.
func TestManyBlocks(t *testing.T) {
	for name, c := range map[string]struct {
		in, out     uint64 // bytes of the arrays, of which one is written
		class, says string
		after       func(r *rig, f, x, y uint64) int
	}{
		"not initialised": {128, 256, "uninitialised", "thread=32,0,0 .* reads global memory", func(r *rig, f, x, y uint64) int { return r.run(f, dim{1}, dim{64}, 0, x, y, 64) }},
		"the last word":   {256, 250, "out-of-bounds", "thread=62,0,0 .* writes global memory .* beyond the end", func(r *rig, f, x, y uint64) int { return r.run(f, dim{1}, dim{64}, 0, x, y, 64) }},
		"read before":     {256, 256, "", "", func(r *rig, f, x, _ uint64) int { return r.run(f, dim{1}, dim{64}, 0, x, x, 64) }},
		"a race": {256, 256, "race", "writes what kernel scale, which was queued later, has read", func(r *rig, f, x, y uint64) int {
			s1, s2 := r.stream(), r.stream()
			r.must("cuMemsetD32Async", x, 0, 64, s1)
			r.launch(f, dim{1}, dim{64}, 0, s2, x, y, 64)
			r.must("cuStreamSynchronize", s2)
			return lib.Call("cuStreamSynchronize", s1)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, 0)
			f, none := r.function(r.module(ptx(t, "bugs")), "scale"), r.function(r.module(header+".visible .entry k() {\nret;\n}\n"), "k")
			x, y := r.alloc(256), r.alloc(int(c.out))
			r.must("cuMemsetD8_v2", x, 1, c.in)
			r.run(f, dim{1}, dim{32}, 0, x, y, 32)
			for range 2 {
				if e := r.run(none, dim{1 << 22}, dim{1}, 0, 0); e != success {
					t.Fatalf("4 million blocks: error %d", e)
				}
			}
			want := map[string]int{"": success, "out-of-bounds": illegalAddress}[c.class]
			if want == success && c.class != "" {
				want = assertion
			}
			if e := c.after(r, f, x, y); e != want {
				t.Errorf("error %d, want %d", e, want)
			}
			if c.class == "" {
				r.clean()
				return
			}
			r.found(c.class, c.says)
		})
	}
}

// TestEarlierAfterLater: an operation that others were queued after, and ran before, is
// ordered with what was queued before it.
func TestEarlierAfterLater(t *testing.T) {
	r := start(t, 0)
	f := r.function(r.module(ptx(t, "bugs")), "scale")
	x, y, z := r.alloc(256), r.alloc(256), r.alloc(256)
	s1, s2, s3, e := r.stream(), r.stream(), r.stream(), r.event()
	r.must("cuMemsetD32Async", x, 0x3f800000, 64, s1)
	r.must("cuEventRecord", e, s1)
	r.must("cuStreamWaitEvent", s2, e, 0)
	r.launch(f, dim{1}, dim{64}, 0, s2, x, y, 64)
	r.launch(f, dim{1}, dim{64}, 0, s2, y, x, 64)
	r.must("cuMemcpyDtoDAsync_v2", y, x, 256, s2)
	r.must("cuMemsetD32Async", z, 0, 64, s3)
	r.must("cuStreamSynchronize", s3)
	r.must("cuStreamSynchronize", s2)
	if v := toFloats(r.download(y, 4))[0]; v != 4 {
		t.Errorf("%g, want 4", v)
	}
	r.clean()
}

// TestWaitingFor: waiting for the default stream runs the streams that it waits for, and a
// stream that is destroyed runs what it has; events may still name it.
func TestWaitingFor(t *testing.T) {
	r := start(t, 0)
	x := r.upload(make([]byte, 256))
	stream := func(flags uint64) uint64 { return r.out(func(p uint64) { r.must("cuStreamCreate", p, flags) }) }
	to := func(s uint64) []byte {
		p, b := r.pinned(256)
		r.must("cuMemcpyDtoHAsync_v2", p, x, 256, s)
		return b
	}
	waits, not, gone, e := stream(0), stream(1), stream(1), r.event()
	a, b := to(waits), to(not)
	r.must("cuStreamSynchronize", 0)
	if a[0] != 0 || b[0] != 0xff {
		t.Errorf("waiting for the default stream: %d of a stream that it waits for, %d of one that it does not", a[0], b[0])
	}
	c := to(gone)
	r.must("cuEventRecord", e, gone)
	r.must("cuStreamDestroy_v2", gone)
	if c[0] != 0 {
		t.Error("a stream was destroyed and has not run")
	}
	r.must("cuStreamWaitEvent", not, e, 0)
	r.must("cuEventSynchronize", e)
	r.want(invalidHandle, "cuStreamSynchronize", gone)
	r.must("cuStreamSynchronize", not)
	r.clean()
}

// TestElapsed: the time between two events is there when both have been passed, of events
// that take it.
func TestElapsed(t *testing.T) {
	r := start(t, 0)
	timed := func() uint64 { return r.out(func(p uint64) { r.must("cuEventCreate", p, 0) }) }
	a, b, untimed, s := timed(), timed(), r.event(), r.stream()
	p, out := harness.Alloc(4)
	ms := func() float32 { return toFloats(out)[0] }
	r.want(invalidHandle, "cuEventElapsedTime", p, a, b) // neither was recorded
	r.must("cuEventRecord", a, s)
	r.want(invalidHandle, "cuEventElapsedTime", p, a, b)
	r.want(invalidHandle, "cuEventElapsedTime", p, b, a)
	r.launch(r.function(r.module(ptx(t, "bugs")), "scale"), dim{1}, dim{64}, 0, s, r.upload(make([]byte, 256)), r.alloc(256), 64)
	r.must("cuEventRecord", b, s)
	r.must("cuEventRecord", untimed, s)
	r.want(notReady, "cuEventElapsedTime", p, a, b)
	r.must("cuEventSynchronize", a)
	r.want(notReady, "cuEventElapsedTime", p, a, b)
	r.want(notReady, "cuEventElapsedTime", p, b, a)
	r.must("cuEventSynchronize", b)
	r.must("cuEventElapsedTime", p, a, b)
	if ms() <= 0 || ms() > 60_000 {
		t.Errorf("%g ms", ms())
	}
	r.must("cuEventElapsedTime", p, a, a)
	if ms() != 0 {
		t.Errorf("%g ms from an event to itself", ms())
	}
	r.must("cuStreamSynchronize", s)
	r.want(invalidHandle, "cuEventElapsedTime", p, a, untimed)
	r.clean()
}

// TestAfterAnError: what is queued behind an error does not run, on no stream of the context.
func TestAfterAnError(t *testing.T) {
	r := start(t, 0)
	f := r.function(r.module(ptx(t, "bugs")), "trapped")
	x := r.upload(make([]byte, 256))
	p, b := r.pinned(256)
	q, c := r.pinned(256)
	s1, s2 := r.stream(), r.stream()
	r.must("cuMemcpyDtoHAsync_v2", q, x, 256, s2)
	r.launch(f, dim{1}, dim{64}, 0, s1, x, x, 64)
	r.must("cuMemcpyDtoHAsync_v2", p, x, 256, s1)
	r.want(launchFailed, "cuStreamSynchronize", s1)
	r.want(launchFailed, "cuCtxSynchronize")
	for i := range b {
		if b[i] != 0xff || c[i] != 0xff {
			t.Fatal("a copy has run")
		}
	}
	r.found("trap", "kernel=trapped")
}
