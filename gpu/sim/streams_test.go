//go:build sim

package sim_test

import (
	"bytes"
	"testing"
)

// blocking is a stream that waits for the default one, as that does for it.
func (r *rig) blocking() uint64 {
	r.Helper()
	return r.out(func(p uint64) { r.must("cuStreamCreate", p, 0) })
}

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
			from, to := s, uint64(0)
			if c.first {
				from, to = 0, s
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

// TestPartsOfWords: copies and fills whose first or last word is theirs in part, and which
// another stream's operation comes before that was queued later.
func TestPartsOfWords(t *testing.T) {
	const n = 16
	type operation func(r *rig, d, p, s uint64)
	fill := operation(func(r *rig, d, _, s uint64) { r.must("cuMemsetD8Async", d, 1, n, s) })
	to := operation(func(r *rig, d, p, s uint64) { r.must("cuMemcpyHtoDAsync_v2", d, p, n, s) })
	from := operation(func(r *rig, d, p, s uint64) { r.must("cuMemcpyDtoHAsync_v2", p, d, n, s) })
	for name, c := range map[string]struct {
		one, other operation // the other is queued later and runs before
		says       string
	}{
		"a fill, a fill":     {fill, fill, "operation=fill device=0: writes what fill, which was queued later, has written"},
		"a fill, a copy":     {fill, to, "operation=fill device=0: writes what copy-to-device, which was queued later, has written"},
		"a fill, a reader":   {fill, from, "operation=fill device=0: writes what copy-to-host, which was queued later, has read"},
		"a copy, a fill":     {to, fill, "operation=copy-to-device device=0: writes what fill, which was queued later, has written"},
		"a copy, a reader":   {to, from, "operation=copy-to-device device=0: writes what copy-to-host, which was queued later, has read"},
		"a reader, a fill":   {from, fill, "operation=copy-to-host device=0: reads what fill, which was queued later, has written"},
		"a reader, a reader": {from, from, ""},
	} {
		// They share two bytes: the last ones of the one, or its first.
		for _, by := range []int{n - 2, 2 - n} {
			r := start(t, 0)
			d := r.upload(make([]byte, 64)) + 17
			p, _ := r.pinned(n)
			q, _ := r.pinned(n)
			s1, s2 := r.stream(), r.stream()
			c.one(r, d, p, s1)
			c.other(r, uint64(int(d)+by), q, s2)
			r.must("cuStreamSynchronize", s2)
			want := assertion
			if c.says == "" {
				want = success
			}
			if e := lib.Call("cuStreamSynchronize", s1); e != want {
				t.Errorf("%s, by %d: error %d", name, by, e)
			}
			if c.says != "" {
				r.found("race", c.says+": nothing makes it wait, at 0x")
			} else {
				r.clean()
			}
		}
	}
}

// TestCopiesOfOne: each of several copies from the same pinned memory is watched until it
// has run, and what they copy is what was there.
func TestCopiesOfOne(t *testing.T) {
	const n = 256
	for name, change := range map[string]int{"none": 0, "before both": 1, "between": 2} {
		r := start(t, 0)
		x, y := r.alloc(n), r.alloc(n)
		p, b := r.pinned(n)
		s1, s2 := r.stream(), r.stream()
		copy(b, floats(random(n/4, 1)...))
		was := bytes.Clone(b)
		r.must("cuMemcpyHtoDAsync_v2", x, p, n, s1)
		r.must("cuMemcpyHtoDAsync_v2", y, p, n, s2)
		if change == 1 {
			b[9]++
		}
		e := lib.Call("cuStreamSynchronize", s1)
		if change == 2 {
			b[9]++
		}
		if e == success {
			e = lib.Call("cuStreamSynchronize", s2)
		}
		if change > 0 {
			if e != assertion {
				t.Errorf("%s: error %d", name, e)
			}
			r.found("host-access", "operation=copy-to-device device=0: the host changed pinned memory at 0x[0-9a-f]+9 while")
			continue
		}
		if e != success || !bytes.Equal(r.download(x, n), was) || !bytes.Equal(r.download(y, n), was) {
			t.Errorf("error %d, or another content", e)
		}
		r.clean()
	}
}

// TestFreedUnderACopy: who frees pinned memory waits for the copies of its own context, and
// who frees a device's for what runs there.
func TestFreedUnderACopy(t *testing.T) {
	const n = 1 << 20 // which is given back to the system
	r := start(t, 0)
	d, s := r.alloc(n), r.stream()
	p, b := r.pinned(n)
	for i := range b {
		b[i] = byte(i * 7)
	}
	was := bytes.Clone(b)
	r.must("cuMemcpyHtoDAsync_v2", d, p, n, s)
	r.must("cuMemFreeHost", p)
	if !bytes.Equal(r.download(d, n), was) {
		t.Error("the copy has another content")
	}
	q, _ := r.pinned(n)
	r.must("cuMemcpyDtoHAsync_v2", q, d, n, s)
	r.must("cuMemFreeHost", q)
	q, b = r.pinned(n)
	r.must("cuMemcpyDtoHAsync_v2", q, d, n, s)
	r.must("cuMemFree_v2", d)
	if !bytes.Equal(b, was) {
		t.Error("the copy to the host has another content")
	}
	r.must("cuStreamSynchronize", s)
	r.clean()
}
