//go:build sim

package sim_test

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"
)

// warpKernel wraps instructions that make the 32-bit register %o of %v, the lane's word of
// in, and %l, the lane.
func warpKernel(name, body string) string {
	return fmt.Sprintf(`.visible .entry %s(.param .u64 in, .param .u64 out) {
.reg .pred %%p<9>; .reg .b32 %%v, %%o, %%l, %%w, %%m, %%t<9>; .reg .b64 %%x, %%y, %%d<9>;
mov.u32 %%l, %%laneid; mov.u32 %%w, %%warpid; ld.param.u64 %%x, [in]; ld.param.u64 %%y, [out];
mad.lo.u32 %%m, %%w, 32, %%l; mad.wide.u32 %%x, %%m, 4, %%x; mad.wide.u32 %%y, %%m, 4, %%y; ld.global.u32 %%v, [%%x]; mov.u32 %%o, 0;
%s
st.global.u32 [%%y], %%o;
ret;
}
`, name, body)
}

// TestWarpCollectives holds shuffles, votes, matches and reductions against their
// definitions, of all lanes and of groups of them.
func TestWarpCollectives(t *testing.T) {
	type collective struct {
		body string
		f    func(v []uint32, l int) uint32
	}
	group := func(l int) []int { // the eight lanes of which l is one
		var g []int
		for k := l &^ 7; k < l&^7+8; k++ {
			g = append(g, k)
		}
		return g
	}
	eight := "shr.u32 %t0, %l, 3; shl.b32 %t0, %t0, 3; mov.u32 %t1, 255; shl.b32 %m, %t1, %t0;"
	cases := map[string]collective{
		"up": {"shfl.sync.up.b32 %o|%p1, %v, 3, 0, -1; selp.b32 %t1, 1000, 0, %p1; add.u32 %o, %o, %t1;", func(v []uint32, l int) uint32 {
			return map[bool]uint32{true: v[max(l-3, 0)%32] + 1000, false: v[l]}[l >= 3]
		}},
		"down": {"shfl.sync.down.b32 %o|%p1, %v, 5, 31, -1; selp.b32 %t1, 1000, 0, %p1; add.u32 %o, %o, %t1;", func(v []uint32, l int) uint32 {
			return map[bool]uint32{true: v[(l+5)%32] + 1000, false: v[l]}[l+5 < 32]
		}},
		"bfly":    {"shfl.sync.bfly.b32 %o, %v, 21, 31, -1;", func(v []uint32, l int) uint32 { return v[l^21] }},
		"idx":     {"xor.b32 %t1, %v, 5; and.b32 %t1, %t1, 31; shfl.sync.idx.b32 %o, %v, %t1, 31, -1;", func(v []uint32, l int) uint32 { return v[(v[l]^5)&31] }},
		"width 8": {eight + "shfl.sync.idx.b32 %o, %v, 2, 0x181f, %m;", func(v []uint32, l int) uint32 { return v[l&^7+2] }},
		"width 4 down": {"shfl.sync.down.b32 %o, %v, 1, 0x1c1f, -1;", func(v []uint32, l int) uint32 {
			if l&3 == 3 {
				return v[l]
			}
			return v[l+1]
		}},
		"width 4 bfly": {"shfl.sync.bfly.b32 %o|%p1, %v, 5, 0x1c1f, -1; selp.b32 %t1, 1000, 0, %p1; add.u32 %o, %o, %t1;", func(v []uint32, l int) uint32 {
			if l&4 == 0 { // the other one is beyond the segment
				return v[l]
			}
			return v[l^5] + 1000
		}},
		"width 8 around": {"shfl.sync.idx.b32 %o, %v, 26, 0x181f, -1;", func(v []uint32, l int) uint32 { return v[l&^7+2] }},
		"clamped idx": {"shfl.sync.idx.b32 %o|%p1, %v, %l, 7, -1; selp.b32 %t1, 1000, 0, %p1; add.u32 %o, %o, %t1;", func(v []uint32, l int) uint32 {
			return map[bool]uint32{true: v[l] + 1000, false: v[l]}[l <= 7]
		}},
		"down of eight": {"setp.lt.u32 %p1, %l, 8; @%p1 shfl.sync.down.b32 %o, %v, 4, 31, 0xff;", func(v []uint32, l int) uint32 {
			if l < 4 {
				return v[l+4]
			}
			return map[bool]uint32{true: ^uint32(0), false: 0}[l < 8]
		}},
		"ballot": {"and.b32 %t1, %v, 1; setp.ne.u32 %p1, %t1, 0; vote.sync.ballot.b32 %o, %p1, -1;", func(v []uint32, l int) (r uint32) {
			for k, x := range v {
				r |= x & 1 << k
			}
			return r
		}},
		"vote": {eight + "and.b32 %t1, %v, 3; setp.ne.u32 %p1, %t1, 0; vote.sync.all.pred %p2, %p1, %m; vote.sync.any.pred %p3, !%p1, %m; vote.sync.uni.pred %p4, %p1, %m; selp.b32 %t1, 1, 0, %p2; selp.b32 %t2, 2, 0, %p3; selp.b32 %t3, 4, 0, %p4; add.u32 %o, %t1, %t2; add.u32 %o, %o, %t3;",
			func(v []uint32, l int) uint32 {
				n := 0
				for _, k := range group(l) {
					if v[k]&3 != 0 {
						n++
					}
				}
				return uint32(flag(n == 8) + 2*flag(n < 8) + 4*flag(n == 0 || n == 8))
			}},
		"match any": {"and.b32 %t1, %v, 3; match.any.sync.b32 %o, %t1, -1;", func(v []uint32, l int) (r uint32) {
			for k, x := range v {
				if x&3 == v[l]&3 {
					r |= 1 << k
				}
			}
			return r
		}},
		"match all":            {eight + "shr.u32 %t1, %l, 4; match.all.sync.b32 %o|%p1, %t1, %m; selp.b32 %t1, 1, 0, %p1; add.u32 %o, %o, %t1;", func(_ []uint32, l int) uint32 { return 255<<(l&^7) + 1 }},
		"match all of several": {"and.b32 %t1, %v, 3; match.all.sync.b32 %o|%p1, %t1, -1; selp.b32 %t1, 1, 0, %p1; add.u32 %o, %o, %t1;", func([]uint32, int) uint32 { return 0 }},
		"redux": {eight + "redux.sync.add.u32 %t2, %v, %m; redux.sync.max.s32 %t3, %v, %m; xor.b32 %o, %t2, %t3;", func(v []uint32, l int) uint32 {
			sum, most := uint32(0), int32(-1<<31)
			for _, k := range group(l) {
				sum, most = sum+v[k], max(most, int32(v[k]))
			}
			return sum ^ uint32(most)
		}},
		"lanes":      {"mov.u32 %t1, %lanemask_lt; mov.u32 %t2, %lanemask_ge; mov.u32 %t3, %lanemask_eq; xor.b32 %o, %t1, %t2; sub.u32 %o, %o, %t3;", func(_ []uint32, l int) uint32 { return ^uint32(0) - 1<<l }},
		"activemask": {"setp.lt.u32 %p1, %l, 10; @%p1 activemask.b32 %o;", func(_ []uint32, l int) uint32 { return map[bool]uint32{true: 1<<10 - 1}[l < 10] }},
		// Lanes in turn, one after the other, and all together in the end.
		"in turn": {"mov.u32 %t1, 0;\nLOOP: setp.eq.u32 %p1, %t1, %l; @!%p1 bra NEXT; mad.lo.u32 %o, %t1, 3, %v; bra.uni NEXT;\nNEXT: add.u32 %t1, %t1, 1; setp.lt.u32 %p2, %t1, 32; @%p2 bra LOOP; shfl.sync.bfly.b32 %o, %o, 1, 31, -1;",
			func(v []uint32, l int) uint32 { return uint32(l^1)*3 + v[l^1] }},
		// The barrier of a warp may be two instructions, one in each branch.
		"two barriers": {"and.b32 %t1, %l, 1; setp.ne.u32 %p1, %t1, 0; @%p1 bra ODD; bar.warp.sync -1; mov.u32 %o, 1; bra END;\nODD: bar.warp.sync -1; mov.u32 %o, 2;\nEND:", func(_ []uint32, l int) uint32 { return uint32(l&1) + 1 }},
	}
	var text strings.Builder
	text.WriteString(header)
	name := func(s string) string { return "k_" + strings.ReplaceAll(s, " ", "_") }
	for n, c := range cases {
		text.WriteString(warpKernel(name(n), c.body))
	}
	r := start(t, 0)
	m := r.module(text.String())
	g := rand.New(rand.NewPCG(3, 4))
	in := make([]uint32, 64)
	for i := range in {
		in[i] = g.Uint32()
	}
	src := r.upload(words(in...))
	for n, c := range cases {
		dst := r.alloc(256)
		if e := r.run(r.function(m, name(n)), dim{1}, dim{64}, 0, src, dst); e != success {
			t.Fatalf("%s: error %d: %s", n, e, findings())
		}
		for i, have := range toWords(r.download(dst, 256)) {
			w := i &^ 31
			if want := c.f(in[w:w+32], i&31); have != want {
				t.Errorf("%s: lane %d: %#x, want %#x", n, i, have, want)
				break
			}
		}
	}
	r.clean()
}

// TestCarry adds and subtracts numbers of 96 and 128 bits in parts.
func TestCarry(t *testing.T) {
	r := start(t, 0)
	m := r.module(header + `.visible .entry k(.param .u64 in, .param .u64 out) {
.reg .b32 %i, %a<3>, %b<3>; .reg .b64 %x, %y, %c<2>, %d<2>, %s<3>;
mov.u32 %i, %tid.x; ld.param.u64 %x, [in]; ld.param.u64 %y, [out]; mad.wide.u32 %x, %i, 32, %x; mad.wide.u32 %y, %i, 48, %y;
ld.global.v2.u64 {%c0, %c1}, [%x]; ld.global.v2.u64 {%d0, %d1}, [%x+16];
add.cc.u64 %s0, %c0, %d0; addc.cc.u64 %s1, %c1, %d1; addc.u64 %s2, 0, 0;
st.global.u64 [%y], %s0; st.global.u64 [%y+8], %s1; st.global.u64 [%y+16], %s2;
sub.cc.u64 %s0, %c0, %d0; subc.cc.u64 %s1, %c1, %d1; subc.u64 %s2, 0, 0;
st.global.u64 [%y+24], %s0; st.global.u64 [%y+32], %s1; st.global.u64 [%y+40], %s2;
ret;
}
`)
	g := rand.New(rand.NewPCG(5, 6))
	v := make([]uint64, 4*64)
	var data []uint32
	for i := range v {
		v[i] = []uint64{0, 1, ^uint64(0), ^uint64(0) - 1, g.Uint64(), 1 << 63}[g.IntN(6)]
		data = append(data, uint32(v[i]), uint32(v[i]>>32))
	}
	dst := r.alloc(48 * 64)
	if e := r.run(r.function(m, "k"), dim{1}, dim{64}, 0, r.upload(words(data...)), dst); e != success {
		t.Fatalf("error %d: %s", e, findings())
	}
	got := toWords(r.download(dst, 48*64))
	for i := range 64 {
		a0, a1, b0, b1 := v[4*i], v[4*i+1], v[4*i+2], v[4*i+3]
		s0, c := bits.Add64(a0, b0, 0)
		s1, c := bits.Add64(a1, b1, c)
		d0, w := bits.Sub64(a0, b0, 0)
		d1, w := bits.Sub64(a1, b1, w)
		for k, want := range []uint64{s0, s1, c, d0, d1, -w} {
			if have := uint64(got[12*i+2*k]) | uint64(got[12*i+2*k+1])<<32; have != want {
				t.Fatalf("%d.%d: %#x, want %#x", i, k, have, want)
			}
		}
	}
}

// TestMultiprocessors: blocks are dealt over the multiprocessors in turn, in all dimensions.
func TestMultiprocessors(t *testing.T) {
	r := start(t, 0)
	m := r.module(header + `.visible .entry k(.param .u64 out) {
.reg .b32 %b, %n, %t; .reg .b64 %y;
mov.u32 %b, %ctaid.z; mov.u32 %n, %nctaid.y; mov.u32 %t, %ctaid.y; mad.lo.u32 %b, %b, %n, %t; mov.u32 %n, %nctaid.x; mov.u32 %t, %ctaid.x;
mad.lo.u32 %b, %b, %n, %t; ld.param.u64 %y, [out]; mad.wide.u32 %y, %b, 4, %y; mov.u32 %t, %nsmid; mul.lo.u32 %t, %t, 100; mov.u32 %n, %smid;
add.u32 %t, %t, %n; st.global.u32 [%y], %t;
ret;
}
`)
	dst := r.alloc(4 * 30)
	if e := r.run(r.function(m, "k"), dim{3, 2, 5}, dim{1}, 0, dst); e != success {
		t.Fatalf("error %d: %s", e, findings())
	}
	for i, have := range toWords(r.download(dst, 4*30)) {
		if want := uint32(400 + i%4); have != want {
			t.Errorf("block %d: %d, want %d", i, have, want)
		}
	}
	r.clean()
}

// TestAtomics: what several blocks make of one word together, of both widths, in both
// memories.
func TestAtomics(t *testing.T) {
	r := start(t, 0)
	m := r.module(header + `.visible .entry k(.param .u64 out) {
.reg .b32 %i, %b, %o, %t; .reg .b64 %y, %d, %e; .reg .pred %p; .shared .align 8 .b64 s;
mov.u32 %i, %tid.x; mov.u32 %b, %ctaid.x; mad.lo.u32 %i, %b, 64, %i; ld.param.u64 %y, [out]; cvt.u64.u32 %d, %i;
red.global.add.u32 [%y], %i; atom.global.add.u64 %e, [%y+8], %d; red.global.max.u32 [%y+16], %i; red.global.min.s32 [%y+20], %i;
red.global.or.b32 [%y+24], %i; red.global.and.b32 [%y+28], %i; red.global.xor.b32 [%y+32], %i; red.global.inc.u32 [%y+36], 99;
atom.global.exch.b32 %o, [%y+40], 7; atom.global.cas.b32 %o, [%y+44], 5, 6; red.max.u64 [%y+48], %d; red.global.dec.u32 [%y+56], 99;
mov.u32 %t, %tid.x; setp.ne.u32 %p, %t, 0; @%p bra W; mov.u64 %e, 0; st.shared.u64 [s], %e;
W: bar.sync 0; red.shared.add.u64 [s], %d; bar.sync 0; ld.shared.u64 %e, [s]; @!%p red.global.add.u64 [%y+64], %e;
ret;
}
`)
	in := make([]uint32, 18)
	in[7], in[5], in[11], in[14] = ^uint32(0), 1<<30, 5, 0
	dst := r.upload(words(in...))
	if e := r.run(r.function(m, "k"), dim{4}, dim{64}, 0, dst); e != success {
		t.Fatalf("error %d: %s", e, findings())
	}
	var xor uint32
	for i := range uint32(256) {
		xor ^= i
	}
	want := []uint32{255 * 128, 0, 255 * 128, 0, 255, 0, 255, 0, xor, 256 % 100, 7, 6, 255, 0, 100 - 56, 0, 255 * 128, 0}
	for i, have := range toWords(r.download(dst, 72)) {
		if have != want[i] {
			t.Errorf("word %d: %d, want %d", i, have, want[i])
		}
	}
	r.clean()
}
