//go:build sim

package sim_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// TestRefusedTexts: what is not known, or not defined to the bit, is refused when the
// module is loaded, and the log says where.
func TestRefusedTexts(t *testing.T) {
	start(t, 0)
	kernel := func(body string) string {
		return header + ".visible .entry k(.param .u64 a) {\n.reg .b32 %r<4>; .reg .f32 %f<4>; .reg .b64 %d<4>; .reg .pred %p<2>; .reg .b16 %h<2>;\n" + body + "\nret;\n}\n"
	}
	for body, says := range map[string]string{
		"garbage.op %r1, %r2;":                 "line 6: unsupported instruction garbage.op",
		"ex2.approx.f32 %f1, %f2;":             "unsupported instruction ex2.approx.f32",
		"div.full.f32 %f1, %f2, %f3;":          "unsupported instruction div.full.f32",
		"add.rz.f32 %f1, %f2, %f3;":            "unsupported instruction add.rz.f32: .rz",
		"add.sat.s32 %r1, %r2, %r3;":           "unsupported instruction add.sat.s32: .sat",
		"fma.rn.sat.f32 %f1, %f2, %f3, %f1;":   "unsupported instruction fma.rn.sat.f32: .sat",
		"atom.global.add.f32 %f1, [%d1], %f2;": "the order in which floats are added",
		"ld.global.b128 %d1, [%d2];":           "unsupported",
		"add.s32 %r1, %r2, %d3;":               "register %d3 has another size",
		"add.s32 %d1, %r2, %r3;":               "another size than its register",
		"add.s32 %r1, %r2;":                    "with 2 operands",
		"mov.u32 %r1, %clock;":                 "unsupported register %clock",
		"mov.u32 %r1, %r9;":                    "unsupported register %r9",
		"add.u32 %r1, %r1, %r4294967297;":      "unsupported register %r4294967297", "add.u32 %r1, %r1, %r4294967295;": "unsupported register %r4294967295",
		"mov.u32 %r1, nothing;":                       "unknown name nothing",
		"bra NOWHERE;":                                "unknown label NOWHERE",
		"shfl.bfly.b32 %r1, %r2, 1, 31;":              "shfl.bfly.b32",
		"vote.all.pred %p1, %p0;":                     "vote.all.pred",
		"st.const.u32 [%d1], %r1;":                    "unsupported instruction st.const.u32",
		"cvt.s32.f32 %r1, %f1;":                       "without a rounding",
		"cp.async.bulk.commit_group;":                 "unsupported instruction cp.async.bulk.commit_group",
		"mma.sync.aligned.m16n8k8.f32 %f1, %f1, %f1;": "unsupported instruction mma",
		"ld.global.u32 %r1, [%r2];":                   "address register %r2 has not 64 bits",
		"@%r1 bra L;\nL:":                             "is no predicate",
		"{ .reg .b32 %x;":                             "",
		"call.uni f, ();":                             "f, which is not defined here",
		".shared .b8 s[];":                            "without a size",
	} {
		_, log, code := load(kernel(body))
		if code != invalidPTX || !strings.Contains(log, says) || !regexp.MustCompile(`^line \d+: `).MatchString(log) {
			t.Errorf("%s: error %d, log %q, want one that says %q", body, code, log, says)
		}
	}
	for text, want := range map[string]int{"no PTX": 200, strings.Replace(kernel(""), "sm_80", "sm_90a", 1): invalidPTX, strings.Replace(kernel(""), "size 64", "size 32", 1): invalidPTX, kernel(""): success,
		strings.Replace(kernel(""), ".u64 a", ".b8 a[32764]", 1): success, strings.Replace(kernel(""), ".u64 a", ".b8 a[32765]", 1): invalidPTX, strings.Replace(kernel(""), ".u64 a", ".b8 a[4294967297]", 1): invalidPTX,
		strings.Replace(kernel(""), "{", ".maxntid 1024, 1, 1 {", 1): success, strings.Replace(kernel(""), "{", ".maxntid 0 {", 1): invalidPTX, strings.Replace(kernel(""), "{", ".maxntid 4294967297 {", 1): invalidPTX,
		kernel(".local .align 3 .b8 x[8];"): invalidPTX, kernel(".local .align 8192 .b8 x[8];"): invalidPTX, kernel(".shared .align 128 .b8 x[8];"): success,
		calls(100, 1, "ret;"): success, calls(300, 1, "ret;"): invalidPTX,
		kernel(".shared .b8 x[200000]; .shared .b8 y[40000]; st.shared.u32 [x], %r1; st.shared.u32 [y], %r1;"): invalidPTX, kernel("mov.u32 %r1, 18446744073709551616;"): invalidPTX} {
		if _, log, code := load(text); code != want {
			t.Errorf("%.40q: error %d (%s), want %d", text, code, log, want)
		}
	}
	recursive := header + ".func f();\n.func f() {\ncall.uni f, ();\nret;\n}\n" + strings.SplitAfterN(kernel("call.uni f, ();"), "64\n", 2)[1]
	if _, log, code := load(recursive); code != invalidPTX || !strings.Contains(log, "recursion") {
		t.Errorf("recursion: error %d, log %q", code, log)
	}
}

// TestFaultsOfTheText: bugs that a compiler does not make, of registers and parameters.
func TestFaultsOfTheText(t *testing.T) {
	for name, c := range map[string]struct {
		body, class, says string
		code              int
	}{
		"register":         {"add.u32 %r1, %r2, 1; st.global.u32 [%d1], %r1;", "uninitialised", "thread=0,0,0 .* reads a register", assertion},
		"register of some": {"setp.lt.u32 %p1, %r0, 5; @%p1 mov.u32 %r2, 7; mov.u32 %r3, %r2; st.global.u32 [%d1], %r3;", "uninitialised", "thread=5,0,0 .* reads a register", assertion},
		"guard":            {"@%p0 st.global.u32 [%d1], %r0;", "uninitialised", "reads a register", assertion},
		"parameter":        {"ld.param.u32 %r1, [a+12]; st.global.u32 [%d1], %r1;", "out-of-bounds", "reads 4 bytes at 12 of 8 bytes of parameters", illegalAddress},
		"local":            {".local .align 4 .b8 x[8]; .local .align 4 .b8 y[8]; mov.u64 %d2, x; st.local.u32 [%d2+8], %r0;", "out-of-bounds", "writes 4 bytes of local memory at 0x8", illegalAddress},
		"local alignment":  {".local .align 4 .b8 x[8]; mov.u64 %d2, x; st.local.u32 [%d2+2], %r0;", "misaligned", "writes 4 bytes of local memory", misaligned},
		"shared atomic":    {".shared .align 4 .b8 x[8]; atom.shared.add.u32 %r1, [x], 1;", "uninitialised", "changes shared memory", assertion},
		"copy too far":     {".shared .align 16 .b8 x[16]; mov.u32 %r1, x; cp.async.ca.shared.global [%r1+32], [%d1], 4;", "out-of-bounds", "writes shared memory at 0x20, beyond the end", illegalAddress},
		"copy misaligned":  {".shared .align 16 .b8 x[64]; mov.u32 %r1, x; cp.async.ca.shared.global [%r1+4], [%d1], 8;", "misaligned", "copies 8 bytes", misaligned},
		"not guarded":      {"setp.lt.u32 %p1, %r0, 5; @%p1 mov.u32 %r2, 7; @!%p1 add.u32 %r3, %r2, 1;", "uninitialised", "thread=5,0,0 .* reads a register", assertion},
		"guarded by not":   {"setp.lt.u32 %p1, %r0, 5; @!%p1 mov.u32 %r2, 7; @!%p1 add.u32 %r3, %r2, 1;", "", "", success},
		"moved, not used":  {"mov.u32 %r3, %r2;", "", "", success},
		"moved over":       {"mov.u32 %r3, 1; mov.u32 %r3, %r2; st.global.u32 [%d1], %r3;", "uninitialised", "thread=0,0,0 .* reads a register", assertion},
		"local, in part":   {".local .align 8 .b8 x[12]; .local .align 8 .b8 y[8]; mov.u64 %d2, x; st.local.v2.u32 [%d2+8], {%r0, %r0};", "out-of-bounds", "writes 8 bytes of local memory at 0x8", illegalAddress},
		"local, before":    {".local .align 8 .b8 x[12]; mov.u64 %d2, x; st.local.u32 [%d2-4], %r0;", "out-of-bounds", "writes 4 bytes of local memory at 0xf+c", illegalAddress},
		"local of others":  {".local .align 8 .b8 x[12]; mov.u64 %d2, x; setp.ne.u32 %p1, %r0, 7; @%p1 st.local.u32 [%d2], %r0; ld.local.u32 %r1, [%d2];", "uninitialised", "thread=7,0,0 .* reads local memory at 0x0", assertion},
		"branch":           {"@%p0 bra L; add.u32 %r1, %r0, 1;\nL:", "uninitialised", "thread=0,0,0 .* reads a register", assertion},
		"behind a branch":  {"setp.lt.u32 %p1, %r0, 5; @%p1 bra L; add.u32 %r1, %r2, 1;\nL:", "uninitialised", "thread=5,0,0 .* reads a register", assertion},
		"at a branch":      {"setp.gt.u32 %p1, %r0, 5; @%p1 bra M; bra.uni L;\nM: add.u32 %r1, %r2, 1;\nL:", "uninitialised", "thread=6,0,0 .* reads a register", assertion},
		"behind a barrier": {"bar.sync 0; add.u32 %r1, %r2, 1;", "uninitialised", "thread=0,0,0 .* reads a register", assertion},
		"half a parameter": {"ld.param.u64 %d2, [a+4];", "out-of-bounds", "reads 8 bytes at 4 of 8 bytes of parameters", illegalAddress},
		"half, indexed":    {"mov.u64 %d2, a; ld.param.u64 %d2, [%d2+4];", "out-of-bounds", "thread=0,0,0 .* reads 8 bytes at 4 of 8 bytes of parameters", illegalAddress},
		"part, indexed":    {"mov.u64 %d2, a; ld.param.u32 %r1, [%d2+2];", "misaligned", "thread=0,0,0 .* reads 4 bytes of parameters at 2", misaligned},
		"copy to nowhere":  {".shared .align 16 .b8 x[16]; mov.u32 %r1, 65536; cp.async.ca.shared.global [%r1], [%d1], 4;", "out-of-bounds", "copies 4 bytes to shared 0x10000, shared memory of the block has", illegalAddress},
		"copy of nothing":  {".shared .align 16 .b8 x[512]; shl.b32 %r1, %r0, 4; mov.u32 %r2, x; add.u32 %r1, %r1, %r2; mov.u64 %d2, 4096; cp.async.cg.shared.global [%r1], [%d2], 16, 0; cp.async.wait_all; ld.shared.u32 %r2, [%r1]; setp.ne.u32 %p1, %r2, 0; @%p1 trap;", "", "", success},
		"copy of too much": {".shared .align 16 .b8 x[16]; mov.u32 %r1, x; ld.param.u64 %d1, [a]; cp.async.cg.shared.global [%r1], [%d1], 16, 17;", "out-of-bounds", "copies 17 bytes into 16", illegalAddress},
		"copy from within": {".shared .align 16 .b8 x[64]; mov.u32 %r1, x; cp.async.ca.shared.global [%r1], [%d1+4], 8;", "misaligned", "thread=0,0,0 .* copies 8 bytes from 0x[0-9a-f]+4 to", misaligned},
		"copy to within":   {".shared .align 16 .b8 x[64]; mov.u32 %r1, x; ld.param.u64 %d1, [a]; cp.async.ca.shared.global [%r1+4], [%d1], 8;", "misaligned", "thread=0,0,0 .* copies 8 bytes from 0x[0-9a-f]+0 to shared 0x[0-9a-f]*4$", misaligned},
		"barrier's count":  {"bar.sync 1, 64;", "divergent-barrier", "for 64 threads", launchFailed},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, 0)
			m := r.module(header + ".visible .entry k(.param .u64 a) {\n.reg .b32 %r<4>; .reg .b64 %d<4>; .reg .pred %p<2>;\nld.param.u64 %d1, [a]; mov.u32 %r0, %tid.x; mad.wide.u32 %d1, %r0, 4, %d1;\n" + c.body + "\nret;\n}\n")
			if e := r.run(r.function(m, "k"), dim{1}, dim{32}, 0, r.upload(make([]byte, 128))); e != c.code {
				t.Errorf("error %d, want %d", e, c.code)
			}
			if c.class == "" {
				r.clean()
				return
			}
			r.found(c.class, c.says)
		})
	}
}

// TestEdges: the last bytes of allocations whose sizes are no multiples of words, and what
// a copy on the device takes along.
func TestEdges(t *testing.T) {
	kernel := func(body string) string {
		return header + ".extern .shared .align 4 .b8 dynamic[];\n.visible .entry k(.param .u64 a) {\n.reg .b32 %r<4>; .reg .b16 %h<4>; .reg .b64 %d<4>;\nld.param.u64 %d1, [a]; mov.u32 %r1, 1; mov.u16 %h1, 1;\n" + body + "\nret;\n}\n"
	}
	for body, says := range map[string]string{
		"st.global.u8 [%d1+5], %h1; ld.global.u8 %h2, [%d1+5]; ld.global.u16 %h2, [%d1+4];": "",
		"st.global.u8 [%d1+6], %h1;":                                  "writes global memory",
		"ld.global.u8 %h2, [%d1+7];":                                  "reads global memory",
		"st.global.u32 [%d1+4], %r1;":                                 "writes global memory",
		"st.global.u16 [%d1+6], %h1;":                                 "writes global memory",
		"atom.global.add.u32 %r2, [%d1+4], 1;":                        "changes global memory",
		"st.global.u16 [%d1+4], %h1; st.global.u16 [%d1+6], %h1;":     "writes global memory",
		".shared .align 4 .b8 s[6]; st.shared.u16 [s+4], %h1;":        "",
		"st.shared.u16 [dynamic+8], %h1;":                             "",
		"st.shared.u16 [dynamic+10], %h1;":                            "writes shared memory",
		".shared .align 4 .b8 v[6]; st.shared.u16 [dynamic+10], %h1;": "writes shared memory",
		".shared .align 4 .b8 s[6]; st.shared.u16 [s+6], %h1;":        "writes shared memory",
		".shared .align 4 .b8 s[6]; st.shared.u32 [s+4], %r1;":        "writes shared memory",
	} {
		r := start(t, 0)
		want := success
		if says != "" {
			want = illegalAddress
		}
		if e := r.run(r.function(r.module(kernel(body)), "k"), dim{1}, dim{1}, 10, r.upload([]byte("sixsix"))); e != want {
			t.Errorf("%s: error %d: %s", body, e, findings())
		}
		if says != "" {
			r.found("out-of-bounds", says+" .* beyond the end of what is allocated")
		}
	}
	r := start(t, 0)
	x, y := r.alloc(256), r.upload(make([]byte, 256))
	r.write(x, make([]byte, 128))
	r.must("cuMemcpyDtoD_v2", y, x, 256)
	if e := r.run(r.function(r.module(ptx(t, "bugs")), "scale"), dim{1}, dim{64}, 0, y, r.alloc(256), 64); e != assertion {
		t.Errorf("what was copied from where nothing was written: error %d", e)
	}
	r.found("uninitialised", "thread=32,0,0 .* reads global memory")
}

// TestEndless: a kernel that does not end is ended.
func TestEndless(t *testing.T) {
	if os.Getenv("LOCKSTEP_SIM_BUDGET") == "" {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestEndless$")
		cmd.Env = append(os.Environ(), "LOCKSTEP_SIM_BUDGET=100000")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	r := start(t, 0)
	if e := r.run(r.function(r.module(ptx(t, "correct")), "vecadd"), dim{20000}, dim{64}, 0, uint64(0), uint64(0), uint64(0), 0); e != success {
		t.Errorf("blocks that execute few instructions each: error %d", e)
	}
	if e := r.run(r.function(r.module(ptx(t, "bugs")), "endless"), dim{1}, dim{64}, 0, r.alloc(256), r.alloc(256), 64); e != timeout {
		t.Errorf("error %d", e)
	}
	r.found("timeout", "has executed 10[0-9]{4} instructions")
}

// TestSeveralThreads: two threads wait on two devices at once, and two on one; an event
// of each orders the other.
func TestSeveralThreads(t *testing.T) {
	r := start(t, 0)
	other := start(t, 1)
	type side struct {
		*rig
		f, stream, event, x, y uint64
	}
	var sides [2]side
	for i, d := range []*rig{r, other} {
		d.enter()
		f := d.function(d.module(ptx(t, "bugs")), "scale")
		sides[i] = side{d, f, d.stream(), d.event(), d.upload(floats(random(64, uint64(i))...)), d.upload(make([]byte, 256))}
	}
	for range 20 {
		for i, s := range sides {
			s.enter()
			s.launch(s.f, dim{1}, dim{64}, 0, s.stream, s.x, s.y, 64)
			s.must("cuEventRecord", s.event, s.stream)
			sides[1-i].enter()
			sides[1-i].must("cuStreamWaitEvent", sides[1-i].stream, s.event, 0)
		}
		var wg sync.WaitGroup
		for k := range 4 {
			wg.Go(func() { lib.Call("cuCtxSetCurrent", 0) })
			wg.Go(func() {
				s := sides[k%2]
				if e := lib.Call("cuEventSynchronize", s.event); e != success && e != invalidContext {
					t.Errorf("error %d", e)
				}
			})
		}
		wg.Wait()
		for _, s := range sides {
			s.enter()
			s.must("cuStreamSynchronize", s.stream)
		}
	}
	r.clean()
}

// TestTable: every function of the table of the driver is exported.
func TestTable(t *testing.T) {
	for name := range functionsOfDriver(t) {
		if !lib.Has(name) {
			t.Errorf("%s is not exported", name)
		}
	}
}

// TestCommittedTexts: the PTX of the kernels that ship is accepted, if it is here.
func TestCommittedTexts(t *testing.T) {
	r := start(t, 0)
	files, err := filepath.Glob(filepath.Join("..", "..", "kernels", "cuda", "ptx", "*.ptx"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		r.module(string(b))
	}
}
