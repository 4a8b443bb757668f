//go:build sim

package sim_test

import (
	"bytes"
	"testing"

	"github.com/lockstep-ml/lockstep/gpu/sim/internal/harness"
)

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
		// When they have run the memory may be a target again.
		r.must("cuMemcpyDtoHAsync_v2", p, x, n, s1)
		if b[0] != 0xff {
			t.Error("a copy to where others were from arrived before anything waited")
		}
		r.must("cuStreamSynchronize", s1)
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

// TestPageable: a copy from memory that is not pinned has it when the call returns, and one
// to such memory is done then.
func TestPageable(t *testing.T) {
	const n = 256
	r := start(t, 0)
	d, s := r.alloc(n), r.stream()
	p, b := harness.Alloc(n)
	copy(b, floats(random(n/4, 1)...))
	was := bytes.Clone(b)
	r.must("cuMemcpyHtoDAsync_v2", d, p, n, s)
	clear(b)
	r.must("cuMemcpyDtoHAsync_v2", p, d, n, s)
	if !bytes.Equal(b, was) {
		t.Error("there and back: another content")
	}
	r.clean()
}

// TestInitialisedBytes: of a word that was written in part, and of one that was copied, the
// host may read what was written.
func TestInitialisedBytes(t *testing.T) {
	written := func(r *rig) uint64 {
		d := r.alloc(16)
		r.must("cuMemsetD8_v2", d+5, 7, 5) // bytes 1 to 3 of the second word, 0 and 1 of the third
		return d
	}
	for name, make := range map[string]func(r *rig) uint64{"written": written, "copied": func(r *rig) uint64 {
		d, e := r.upload([]byte("sixteen letters.")), written(r)
		r.must("cuMemcpyDtoD_v2", d, e, 16)
		return d
	}, "copied elsewhere": func(r *rig) uint64 {
		d, e := r.upload([]byte("a row of twenty byte")), written(r)
		r.must("cuMemcpyDtoD_v2", d+2, e, 16)
		return d + 2
	}} {
		for from := range uint64(16) {
			for _, n := range []uint64{1, 2, 5} {
				if from+n > 16 {
					continue
				}
				r := start(t, 0)
				p, b := harness.Alloc(8)
				d, well := make(r), from >= 5 && from+n <= 10
				e := lib.Call("cuMemcpyDtoH_v2", p, d+from, n)
				if well && (e != success || b[0] != 7 || b[n-1] != 7) || !well && e != assertion {
					t.Errorf("%s, %d bytes from %d on: error %d, %v", name, n, from, e, b[:n])
				}
				if well {
					r.clean()
				} else {
					r.found("uninitialised", "operation=copy-to-host device=0: reads memory that was not written, at 0x")
				}
			}
		}
	}
}
