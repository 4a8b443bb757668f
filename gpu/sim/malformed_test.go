//go:build sim

package sim_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// some is a module with one statement of most kinds, which can be loaded and runs.
const some = `.version 8.0
.target sm_80, debug
.address_size 64
.file 1 "some.cu"
.extern .shared .align 16 .b8 dynamic[];
.global .align 4 .u32 table[4] = {1, 2, -3, 0x4};
.const .align 8 .b8 constant[16];
.func (.param .b32 result) helper (.param .b32 value, .param .align 4 .b8 pair[8])
{
	.reg .b32 %r<4>;
	ld.param.u32 %r1, [value];
	ld.param.u32 %r2, [pair+4];
	add.s32 %r3, %r1, %r2;
	st.param.b32 [result], %r3;
	ret;
}
.visible .entry k(
	.param .u64 .ptr .global .align 4 memory,
	.param .u32 number
)
.maxntid 64, 1, 1
.minnctapersm 1
{
	.reg .pred %p<4>;
	.reg .b16 %h<3>;
	.reg .b32 %r<12>, %extra;
	.reg .f32 %f<4>;
	.reg .b64 %d<8>;
	.shared .align 16 .b8 tile[1024];
	.local .align 8 .b8 depot[32];
	.loc 1 2 3
	ld.param.u64 %d1, [memory];
	ld.param.u32 %r1, [number];
	cvta.to.global.u64 %d2, %d1;
	mov.u32 %r2, %tid.x;
	.loc 1 4 1, function_name $name + 5, inlined_at 1 2 3
	mad.wide.u32 %d3, %r2, 16, %d2;
	mov.u64 %d4, depot;
	st.local.u32 [%d4+8], %r2;
	ld.local.u32 %r3, [%d4+8];
	mov.u32 %r4, tile;
	mad.lo.s32 %r4, %r2, 16, %r4;
	cp.async.cg.shared.global [%r4], [%d3+0], 16, 8;
	cp.async.commit_group;
	cp.async.wait_group 0;
	bar.sync 0;
	ld.shared.v2.u32 {%r5, %r6}, [%r4+0];
	setp.lt.and.u32 %p1|%p2, %r2, 16, 1;
	not.pred %p3, %p2;
	shfl.sync.bfly.b32 %r7|%p2, %r5, 1, 31, -1;
	vote.sync.ballot.b32 %r8, %p1, 0xffffffff;
	match.any.sync.b32 %r9, %r6, -1;
	redux.sync.add.u32 %r9, %r9, -1;
	@%p1 bra LESS;
	{
		.reg .b32 %inner;
		mov.b32 %inner, 0f3f800000;
		mov.b32 %f1, %inner;
		fma.rn.f32 %f2, %f1, 0f40000000, %f1;
	}
LESS:
	@!%p3 add.u32 %r8, %r8, %r7;
	mov.b64 %d5, {%r7, %r8};
	mov.b64 {%r7, _}, %d5;
	cvt.u16.u32 %h1, %r7;
	cvt.rzi.s32.f32 %r10, 0f42280000;
	prmt.b32 %r10, %r10, %r7, 0x5410;
	lop3.b32 %r10, %r10, %r7, %r8, 0x96;
	ld.global.u32 %r11, [table+4];
	atom.global.add.u32 %extra, [%d2+1024], 1;
	{
		.param .b32 in;
		.param .align 4 .b8 two[8];
		.param .b32 out;
		st.param.b32 [in], %r11;
		st.param.b32 [two+4], 7;
		call.uni (out), helper, (in, two);
		ld.param.b32 %r11, [out];
	}
	st.global.v4.u32 [%d3], {%r11, %r10, %r8, %r3};
	.pragma "nounroll";
	ret;
}
.section .debug_str
{
	.b8 65, 0
}
`

var token = regexp.MustCompile(`"[^"]*"|[\w.%$:]+|[^\s\w]`)

// malformed are texts that are some but for one token, end early, or nest what nobody nests.
func malformed() (out []string) {
	at := token.FindAllStringIndex(some, -1)
	numbers := strings.Fields("0 1 -1 3 65536 2147483647 2147483648 4294967288 4294967295 4294967296 4294967300 9223372036854775808 18446744073709551615 18446744073709551616 99999999999999999999999")
	others := strings.Fields(`{ } ( ) [ ] ; , + - | ! @ < > = : _ " /* %r0 %r4294967295 %r99999999999999999999 %p1 %d1 %f1 tile memory table dynamic k helper LESS .reg .param .shared .local .entry .func .align .b8 .pred .v4 0f3f800000 {%r1} {%r1,%r2,%r3,%r4} $`)
	isNumber := regexp.MustCompile(`^[0-9]`)
	for i, t := range at {
		before, this, after := some[:t[0]], some[t[0]:t[1]], some[t[1]:]
		out = append(out, before, before+after, before+this+" "+this+after)
		if i+1 < len(at) {
			out = append(out, before+some[at[i+1][0]:at[i+1][1]]+some[t[1]:at[i+1][0]]+this+some[at[i+1][1]:])
		}
		with := others
		if isNumber.MatchString(this) {
			with = append(numbers, others...)
		}
		for _, o := range with {
			out = append(out, before+" "+o+" "+after)
		}
	}
	const many = 200_000
	body := func(s string) string { return strings.Replace(some, "ret;\n}\n.section", s+"\nret;\n}\n.section", 1) }
	vector := "{%r1" + strings.Repeat(", %r1", 256) + "}"
	out = append(out, "", "\x00", ".version", some+"\x00\xff", some+some,
		body("ld.global.u32 %r1, "+strings.Repeat("[", many)), body("mov.u32 %r1, "+strings.Repeat("{", many)), body(strings.Repeat("{", many)), body(strings.Repeat("-", many)),
		body("ld.global.u32 "+vector+", [%d1];"), body("st.global.u32 [%d1], "+vector+";"), body("mov.b64 %d1, "+vector+";"), body("mov.b64 "+vector+", %d1;"),
		body("shfl.sync.bfly.b32 {}, %r1, 1, 31, -1;"), body("shfl.sync.bfly.b32 {%r1}, %r1, 1, 31, -1;"), body("match.all.sync.b32 {}, %r1, -1;"), body("match.all.sync.b32 {%r1}, %r1, -1;"),
		body("ld.param.u32 %r1, [number-1000000];"), body("ld.param.u32 %r1, [number+18446744073709551612];"), body("ld.param.u32 %r1, [memory-4];"),
		body("bar.sync 99;"), body("bar.sync 1, 31;"), body("bar.warp.sync 0;"), body("bra LESS;"),
		strings.Replace(some, "table[4] = {1", "table[4611686018427387905][4] = {1", 1), strings.Replace(some, "constant[16]", "constant[1152921504606846976]", 1),
		strings.Replace(some, ".u32 number", ".align 4 .b8 number[4294967295]", 1), strings.Replace(some, ".u32 number", ".align 4 .b8 number[8589934592]", 1),
		calls(40, 2, ""), calls(20_000, 1, ""), calls(3, 3, ".reg .b32 %r<2>; mov.u32 %r1, 0; ret;"))
	return append(out, scrambled(3000)...)
}

// calls is a module whose functions call the next one so many times, so deep.
func calls(deep, times int, body string) string {
	var b strings.Builder
	b.WriteString(header)
	for i := deep; i >= 0; i-- {
		kind := fmt.Sprintf(".func f%d()", i)
		if i == 0 {
			kind = ".visible .entry k()"
		}
		call := ""
		if i < deep {
			call = fmt.Sprintf("call.uni f%d, ();\n", i+1)
		}
		fmt.Fprintf(&b, "%s {\n%s%s\n}\n", kind, strings.Repeat(call, times), body)
	}
	return b.String()
}

// scrambled are texts of some in which a few bytes are others.
func scrambled(n int) (out []string) {
	g := rand.New(rand.NewPCG(1, 2))
	for range n {
		b := []byte(some)
		for range 1 + g.IntN(4) {
			b[g.IntN(len(b))] = some[g.IntN(len(some))]
		}
		out = append(out, string(b))
	}
	return out
}

// loads takes a text as a program does: it is loaded and, where that succeeds, runs.
func (r *rig) loads(text string) {
	m, log, code := load(text)
	if code != success {
		if code == invalidPTX && !strings.HasPrefix(log, "line ") {
			r.Errorf("refused by %q: %.200q", log, text)
		}
		return
	}
	f := r.out(func(p uint64) {
		n := cstring("k")
		if lib.Call("cuModuleGetFunction", p, m, n) != success {
			r.must("cuModuleUnload", m)
		}
	})
	if f == 0 {
		return
	}
	memory := r.upload(make([]byte, 2048))
	_ = r.launch(f, dim{1}, dim{64}, 64, 0, memory, uint64(7), uint64(7), uint64(7), uint64(7), uint64(7), uint64(7), uint64(7))
	lib.Call("cuCtxSynchronize")
	r.must("cuDevicePrimaryCtxReset_v2", 0)
	r.enter()
	lib.Call("lockstep_simulator_forget_findings")
}

// TestMalformedTexts: whatever the text, there is an answer, and soon. Each is given to
// another process, which this one outlives.
func TestMalformedTexts(t *testing.T) {
	texts := malformed()
	r := start(t, 0)
	if os.Getenv("SIM_TEST_CHILD") != "" {
		from, _ := strconv.Atoi(os.Getenv("SIM_TEST_FROM"))
		for i, text := range texts[from:] {
			fmt.Println("text", from+i)
			r.loads(text)
		}
		return
	}
	if e := r.run(r.function(r.module(some), "k"), dim{1}, dim{64}, 64, r.upload(make([]byte, 2048)), 7); e != success {
		t.Fatalf("the text that others are made of: error %d, %s", e, findings())
	}
	last, failed := -1, 0
	for last+1 < len(texts) && failed < 20 {
		at, out := survived(t, last+1)
		if at == len(texts)-1 && out == "" {
			break
		}
		failed++
		last = max(at, last+1)
		t.Errorf("text %d of %d: %s\n%s", last, len(texts), out, difference(texts[last]))
	}
	t.Logf("%d texts", len(texts))
}

// survived has a process take texts from one on. It gives the last that was begun, and what
// ended the process, if it is not that there were no more.
func survived(t *testing.T, from int) (last int, out string) {
	ctx, stop := context.WithTimeout(t.Context(), 40*time.Second)
	defer stop()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run", "^TestMalformedTexts$")
	cmd.Env = append(os.Environ(), "SIM_TEST_CHILD=1", "SIM_TEST_FROM="+strconv.Itoa(from), "LOCKSTEP_SIM_BUDGET=20000", "LOCKSTEP_SIM_MEMORY=16M")
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs strings.Builder
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var rest []string
	for lines := bufio.NewScanner(pipe); lines.Scan(); {
		if n, ok := strings.CutPrefix(lines.Text(), "text "); ok {
			last, _ = strconv.Atoi(n)
		} else {
			rest = append(rest, lines.Text())
		}
	}
	if err := cmd.Wait(); err != nil {
		return last, fmt.Sprintf("%v: %.600s%.600s", err, strings.Join(rest, "\n"), errs.String())
	}
	return last, ""
}

// difference is where a text differs from some.
func difference(text string) string {
	i := 0
	for i < len(text) && i < len(some) && text[i] == some[i] {
		i++
	}
	return fmt.Sprintf("%q from byte %d on: %q", some[max(0, i-60):i], i, text[i:min(len(text), i+60)])
}
