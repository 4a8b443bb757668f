//go:build sim

package sim_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func width(t string) int {
	w := 0
	fmt.Sscanf(t[1:], "%d", &w)
	return w
}

// class is the register of a type.
func class(t string) string {
	return map[int]string{0: "p", 16: "h", 32: "r", 64: "d"}[width(t)]
}

// source is a kernel that applies an instruction to arrays of 64-bit slots.
func (in instruction) source(name string) string {
	var b strings.Builder
	types := strings.Fields(in.types)
	fmt.Fprintf(&b, ".visible .entry %s(.param .u64 in, .param .u64 out, .param .u32 n) {\n.reg .pred %%p<9>; .reg .b16 %%h<9>; .reg .b32 %%r<9>; .reg .b64 %%d<9>;\n", name)
	b.WriteString(".reg .b32 %i, %b, %n, %t; .reg .b64 %x, %y; .reg .pred %g;\nmov.u32 %i, %tid.x; mov.u32 %b, %ctaid.x; mad.lo.u32 %i, %b, 32, %i;\nld.param.u32 %n, [n]; setp.ge.u32 %g, %i, %n; @%g ret;\n")
	b.WriteString("ld.param.u64 %x, [in]; ld.param.u64 %y, [out]; mad.wide.u32 %y, %i, 8, %y; mad.wide.u32 %x, %i, 32, %x;\n")
	operands := ""
	for k, t := range types {
		reg := fmt.Sprintf("%%%s%d", class(t), k)
		if k > 0 {
			if t == "p" {
				fmt.Fprintf(&b, "ld.global.u32 %%t, [%%x+%d]; and.b32 %%t, %%t, 1; setp.ne.u32 %s, %%t, 0;\n", 8*k-8, reg)
			} else {
				fmt.Fprintf(&b, "ld.global.b%d %s, [%%x+%d];\n", width(t), reg, 8*k-8)
			}
			operands += ", "
		}
		operands += reg
	}
	fmt.Fprintf(&b, "%s %s%s;\n", in.op, operands, in.tail)
	d := fmt.Sprintf("%%%s0", class(types[0]))
	switch width(types[0]) {
	case 0:
		fmt.Fprintf(&b, "selp.b64 %%x, 1, 0, %s; st.global.u64 [%%y], %%x;\nret;\n}\n", d)
	case 64:
		fmt.Fprintf(&b, "st.global.u64 [%%y], %s;\nret;\n}\n", d)
	default:
		fmt.Fprintf(&b, "cvt.u64.u%d %%x, %s; st.global.u64 [%%y], %%x;\nret;\n}\n", width(types[0]), d)
	}
	return b.String()
}

const header = ".version 8.0\n.target sm_80\n.address_size 64\n"

// TestArithmetic holds every instruction against its definition, on operands that break
// things and on random ones, with all lanes and with some.
func TestArithmetic(t *testing.T) {
	r := start(t, 0)
	var all []instruction
	for _, w := range []int{16, 32, 64} {
		all = append(all, integers(w)...)
	}
	all = append(all, others()...)
	all = append(all, reals()...)
	all = append(all, comparisons()...)
	all = append(all, conversions()...)
	var text strings.Builder
	text.WriteString(header)
	for i, in := range all {
		text.WriteString(in.source(fmt.Sprintf("k%d", i)))
	}
	m := r.module(text.String())
	g := rand.New(rand.NewPCG(1, 2))
	const n = 32*150 + 7 // the last warp is not whole
	for i, in := range all {
		types := strings.Fields(in.types)
		args := make([][]uint64, n)
		var data []byte
		for j := range args {
			args[j] = make([]uint64, len(types)-1)
			slots := make([]uint32, 8)
			for k, t := range types[1:] {
				v := g.Uint64()
				if e := edges(width(t)); g.IntN(8) > 0 {
					v = e[g.IntN(len(e))]
				}
				if w := width(t); w > 0 && w < 64 {
					v &= 1<<w - 1
				}
				if t == "p" {
					v &= 1
				}
				args[j][k] = v
				slots[2*k], slots[2*k+1] = uint32(v), uint32(v>>32)
			}
			data = append(data, words(slots...)...)
		}
		src, dst := r.upload(data), r.alloc(8*n)
		if e := r.run(r.function(m, fmt.Sprintf("k%d", i)), dim{n/32 + 1}, dim{32}, 0, src, dst, n); e != success {
			t.Fatalf("%s: error %d: %s", in.op, e, findings())
		}
		got := toWords(r.download(dst, 8*n))
		for j := range args {
			have, want := uint64(got[2*j])|uint64(got[2*j+1])<<32, in.f(args[j])
			if have != want {
				t.Errorf("%s %#x%s: %#x, want %#x", in.op, args[j], in.tail, have, want)
				break
			}
		}
		r.must("cuMemFree_v2", src)
		r.must("cuMemFree_v2", dst)
	}
	t.Logf("%d instructions", len(all))
}

// TestOtherInstructionSets runs the tests above as the simulator computes where there is
// no AVX-512, and without checks what does not need them.
func TestOtherInstructionSets(t *testing.T) {
	if os.Getenv("LOCKSTEP_SIM_ISA") != "" {
		t.Skip("this is one of them")
	}
	for _, c := range [][2]string{{"generic", "all"}, {"avx2", "all"}, {"avx512", "none"}} {
		tests := "TestArithmetic|TestCarry|TestCorrectKernels|TestMoves|TestTiledProduct|TestWarp.*"
		if c[1] == "all" {
			tests += "|TestAccesses"
		}
		cmd := exec.Command(os.Args[0], "-test.run", "^("+tests+")$")
		cmd.Env = append(os.Environ(), "LOCKSTEP_SIM_ISA="+c[0], "LOCKSTEP_SIM_CHECKS="+c[1])
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %v\n%s", c, err, out)
		}
	}
}
