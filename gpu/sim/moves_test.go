//go:build sim

package sim_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
)

// moveKernel has a warp read elements of a type from where a table says for each lane, in
// one memory or another, and write the first 32 bits of each to its place in out; then each
// lane writes them to where another table says in back.
func moveKernel(kind string, n int, local bool) string {
	var regs, puts []string
	for k := range n {
		regs = append(regs, fmt.Sprintf("%%r%d", k))
		puts = append(puts, fmt.Sprintf("st.global.u32 [%%y+%d], %%r%d;", 4*k, k))
	}
	vector, operand := "", regs[0]
	if n > 1 {
		vector, operand = fmt.Sprintf(".v%d", n), "{"+strings.Join(regs, ", ")+"}"
	}
	space, from := "global", "%x"
	prepare := "add.u64 %x, %x, %d; "
	if local { // each lane has what is there in local memory
		space, from = "local", "%b"
		prepare = "add.u64 %x, %x, %d; mov.u64 %b, a; ld.global.v4.u32 {%r0, %r1, %r2, %r3}, [%x]; st.local.v4.u32 [%b], {%r0, %r1, %r2, %r3}; "
	}
	return header + `.visible .entry k(.param .u64 in, .param .u64 table, .param .u64 out, .param .u64 back, .param .u64 places) {
.reg .b32 %l, %o, %r<4>; .reg .b64 %x, %y, %z, %t, %b, %d; .local .align 16 .b8 a[16];
ld.param.u64 %x, [in]; ld.param.u64 %t, [table]; ld.param.u64 %y, [out]; ld.param.u64 %z, [back]; mov.u32 %l, %laneid;
mad.wide.u32 %t, %l, 4, %t; ld.global.u32 %o, [%t]; cvt.u64.u32 %d, %o; ` + prepare + `mad.wide.u32 %y, %l, 16, %y; ld.param.u64 %t, [places]; mad.wide.u32 %t, %l, 4, %t; ld.global.u32 %o, [%t]; cvt.u64.u32 %d, %o; add.u64 %z, %z, %d;
` + fmt.Sprintf("ld.%s%s.%s %s, [%s]; %s\nst.global%s.%s [%%z], %s;", space, vector, kind, operand, from, strings.Join(puts, " "), vector, kind, operand) + "\nret;\n}\n"
}

// TestMoves: what loads and stores move, of each size and length, however the lanes lie.
func TestMoves(t *testing.T) {
	in := make([]byte, accessBytes)
	for i := range in {
		in[i] = byte(i*37 + i>>8*11)
	}
	sizes := map[string]int{"u8": 1, "s8": 1, "u16": 2, "s16": 2, "u32": 4}
	value := func(kind string, at int) uint32 {
		b := in[at:]
		switch kind {
		case "u8":
			return uint32(b[0])
		case "s8":
			return uint32(int32(int8(b[0])))
		case "u16":
			return uint32(binary.LittleEndian.Uint16(b))
		case "s16":
			return uint32(int32(int16(binary.LittleEndian.Uint16(b))))
		}
		return binary.LittleEndian.Uint32(b)
	}
	r := start(t, 0)
	src := r.upload(in)
	for kind, size := range sizes {
		for _, n := range []int{1, 2, 4} {
			for _, local := range []bool{false, true} {
				f := r.function(r.module(moveKernel(kind, n, local)), "k")
				for _, pattern := range []string{"a row", "apart", "one of eight", "sixteens", "one"} {
					step := n * size
					if local {
						step = 16
					}
					from, to := make([]uint32, 32), make([]uint32, 32)
					for l := range from {
						p := patterns[pattern].of
						from[l], to[l] = uint32(p(l)*step), uint32(p(l)*step)
						if p(0) == p(1) { // lanes that read one word do not write one
							to[l] = uint32(l * step)
						}
					}
					out, back := r.alloc(32*16), r.upload(make([]byte, accessBytes))
					if e := r.run(f, dim{1}, dim{32}, 0, src, r.upload(words(from...)), out, back, r.upload(words(to...))); e != success {
						t.Fatalf("%s x %d, %s: error %d: %s", kind, n, pattern, e, findings())
					}
					there := r.download(back, accessBytes)
					for l, a := range from {
						got := toWords(r.download(out+uint64(16*l), 4*n))
						for k := range n {
							if want := value(kind, int(a)+k*size); got[k] != want {
								t.Fatalf("%s x %d, %s, local %v: lane %d reads %#x, want %#x", kind, n, pattern, local, l, got[k], want)
							}
						}
						if have, want := string(there[to[l]:int(to[l])+n*size]), string(in[a:int(a)+n*size]); have != want {
							t.Fatalf("%s x %d, %s, local %v: lane %d writes %x, want %x", kind, n, pattern, local, l, have, want)
						}
					}
				}
			}
		}
	}
	r.clean()
}
