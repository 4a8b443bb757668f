//go:build sim

package sim_test

import (
	"fmt"
	"strings"
	"testing"
)

// ordered is instructions of 64 threads a block and what must be found in them. They have
// %t, the thread, %l, its lane, %p3 to %p5 and %p7, which are threads 3 to 5 and 40, %p8,
// which is warp 1, %b and %p6, the block and whether it is the first; %x and %y, addresses
// of 256 bytes each, which were and were not written, and s, 512 bytes of shared memory.
type ordered struct {
	body, class, says string
}

// kernel has %x and %y in global memory, or in s.
func (o ordered) kernel(shared bool) string {
	fill := ""
	if shared {
		fill = "mov.u64 %d0, s; cvta.shared.u64 %x, %d0; add.u64 %y, %x, 256; mad.wide.u32 %d0, %t, 4, %x; st.u32 [%d0], %t; bar.sync 0;\n"
	}
	return header + `.visible .entry k(.param .u64 x, .param .u64 y) {
.reg .pred %p<9>; .reg .b32 %t, %l, %b, %r<9>; .reg .b64 %x, %y, %d<4>; .shared .align 16 .b8 s[512];
ld.param.u64 %x, [x]; ld.param.u64 %y, [y]; mov.u32 %t, %tid.x; mov.u32 %l, %laneid; mov.u32 %b, %ctaid.x; setp.eq.u32 %p6, %b, 0;
setp.eq.u32 %p3, %t, 3; setp.eq.u32 %p4, %t, 4; setp.eq.u32 %p5, %t, 5; setp.eq.u32 %p7, %t, 40; setp.gt.u32 %p8, %t, 31;
` + fill + o.body + "\nret;\n}\n"
}

func (o ordered) run(t *testing.T, name string, blocks int, shared bool) {
	t.Run(fmt.Sprintf("%s, shared %v", name, shared), func(t *testing.T) {
		r := start(t, 0)
		code := r.run(r.function(r.module(o.kernel(shared)), "k"), dim{blocks}, dim{64}, 0, r.upload(make([]byte, 256)), r.alloc(256))
		if want := map[string]int{"race": assertion, "divergent-barrier": launchFailed, "uninitialised": assertion, "divergent-shuffle": launchFailed, "out-of-bounds": illegalAddress}[o.class]; code != want {
			t.Errorf("error %d, want %d", code, want)
		}
		if o.class == "" {
			r.clean()
			return
		}
		r.found(o.class, o.says)
	})
}

// TestOrder: what orders two accesses and what does not, where it is not the same for all
// lanes of a warp, or is done very often.
func TestOrder(t *testing.T) {
	const (
		copies = "shl.b32 %r0, %t, 2; mov.u32 %r1, s; add.u32 %r1, %r1, %r0; cvt.u64.u32 %d0, %r0; add.u64 %d0, %d0, %x;\n" +
			"setp.lt.u32 %p1, %l, 16; cp.async.ca.shared.global [%r1], [%d0], 4;\n"
		group = copies + "cp.async.commit_group; "
		// Lanes of a warp pass words on in turn, with a barrier between.
		turns = "mad.wide.u32 %d0, %t, 4, %y; xor.b32 %r1, %t, 1; mad.wide.u32 %d1, %r1, 4, %y; mov.u32 %r3, 0;\n" +
			"TURN: st.u32 [%d0], %r3; BARRIER; ld.u32 %r4, [%d1]; BARRIER; add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, 600; @%p1 bra TURN;\n"
	)
	// Lanes meet at two instructions, and each has another's word then.
	const branches = "mad.wide.u32 %d0, %t, 4, %y; xor.b32 %r1, %t, 1; mad.wide.u32 %d1, %r1, 4, %y; and.b32 %r1, %t, 1; setp.eq.u32 %p2, %r1, 1;\n" +
		"st.u32 [%d0], %t; @%p2 bra ODD; bar.warp.sync -1; bra.uni MET;\nODD: bar.warp.sync -1;\nMET: ld.u32 %r2, [%d1];"
	for name, o := range map[string]ordered{
		"a wait of some lanes":            {group + "@%p1 cp.async.wait_group 0; ld.shared.u32 %r2, [%r1];", "race", "thread=16,0,0 .* reads shared memory at 0x[0-9a-f]+, to which a copy is under way"},
		"a wait of others for all":        {group + "@!%p1 cp.async.wait_all; ld.shared.u32 %r2, [%r1];", "race", "thread=0,0,0 .* to which a copy is under way"},
		"a wait of some lanes, of theirs": {group + "@%p1 cp.async.wait_group 0; @%p1 ld.shared.u32 %r2, [%r1];", "", ""},
		"a wait of all lanes in two":      {group + "@%p1 cp.async.wait_group 0; @!%p1 cp.async.wait_group 0; ld.shared.u32 %r2, [%r1];", "", ""},

		"a wait for what is in no group": {copies + "cp.async.wait_group 0; ld.shared.u32 %r2, [%r1];", "race", "thread=0,0,0 .* to which a copy is under way"},
		"a wait for all, in no group":    {copies + "cp.async.wait_all; ld.shared.u32 %r2, [%r1];", "", ""},
		"a wait for all but one group":   {group + "cp.async.commit_group; cp.async.wait_group 1; ld.shared.u32 %r2, [%r1];", "", ""},

		"lanes 0 to 15 for all, others for these": {"setp.lt.u32 %p1, %l, 16; selp.b32 %r0, -1, 0xffff0000, %p1; shfl.sync.bfly.b32 %r1, %t, 1, 31, %r0;", "divergent-shuffle", "thread=16,0,0 .* comes with another mask than lane 0, whose mask ffffffff has it"},
		"others for all, lanes 0 to 15 for these": {"setp.lt.u32 %p1, %l, 16; selp.b32 %r0, 0xffff, -1, %p1; shfl.sync.bfly.b32 %r1, %t, 1, 31, %r0;", "divergent-shuffle", "thread=0,0,0 .* comes with another mask than lane 16, whose mask ffffffff has it"},
		"halves, one of which is not all there":   {"setp.eq.u32 %p2, %l, 31; @%p2 bra LATE;\nJOIN: setp.lt.u32 %p1, %l, 16; selp.b32 %r0, 0xffff, 0xffff0000, %p1; shfl.sync.bfly.b32 %r1, %t, 1, 31, %r0; bra.uni END;\nLATE: add.u32 %r2, %t, 1; bra.uni JOIN;\nEND:", "", ""},
		"barriers of the warp in branches":        {branches, "", ""},
		"barriers in branches, of those there":    {"setp.gt.u32 %p1, %l, 15; @%p1 ret; " + branches, "", ""},
		"halves, each from the other":             {"setp.lt.u32 %p1, %l, 16; selp.b32 %r0, 0xffff, 0xffff0000, %p1; shfl.sync.bfly.b32 %r1, %t, 17, 31, %r0;", "divergent-shuffle", "thread=0,0,0 .* reads lane 17, which does not take part .mask 0000ffff"},
		"halves, each for itself":                 {"setp.lt.u32 %p1, %l, 16; selp.b32 %r0, 0xffff, 0xffff0000, %p1; shfl.sync.bfly.b32 %r1, %t, 1, 31, %r0;", "", ""},
	} {
		o.run(t, name, 1, false)
	}
	const many = "mov.u32 %r3, 0; @%p8 bra ENOUGH;\nTURN: bar.warp.sync -1; add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, 1100; @%p1 bra TURN;\nENOUGH: @%p3 st.u32 [%x+20], %t; @%p7 ld.u32 %r0, [%x+20];"
	for _, shared := range []bool{false, true} {
		ordered{many, "race", "thread=40,0,0 .* reads .* which thread 3,0,0 has written with no barrier between"}.run(t, "a race after more barriers of the warp than are counted", 1, shared)
		for name, barrier := range map[string]string{"barriers of the warp": "bar.warp.sync -1", "barriers": "bar.sync 0"} {
			ordered{strings.ReplaceAll(turns, "BARRIER", barrier), "", ""}.run(t, "more "+name+" than are counted", 1, shared)
		}
	}
}

// TestBarriers: barriers with numbers, for some warps of a block, that do not match.
func TestBarriers(t *testing.T) {
	const class, race = "divergent-barrier", "race"
	two := func(first, second string) string {
		return "@%p8 bra SECOND; " + first + " bra.uni END;\nSECOND: " + second + "\nEND:"
	}
	for name, o := range map[string]ordered{
		"some at a shuffle":            {"and.b32 %r1, %t, 1; setp.eq.u32 %p1, %r1, 1; @%p1 bra ODD; shfl.sync.bfly.b32 %r2, %t, 2, 31, -1; bra.uni END;\nODD: bar.sync 0;\nEND:", class, "lanes 55555555 wait for others .* lanes aaaaaaaa wait at"},
		"two numbers":                  {"mov.u32 %r0, %warpid; bar.sync %r0;", class, "waits at barrier 0, but warp 1 waits at barrier 1"},
		"for one warp, for two":        {two("bar.sync 1, 64;", "bar.sync 1, 32;"), class, "waits at barrier 1, but warp 1 has returned"},
		"for two warps, of two":        {two("bar.sync 1, 64;", "bar.sync 1, 64;"), "", ""},
		"one arrives, one waits":       {two("st.u32 [%y], %t; bar.arrive 1, 64;", "bar.sync 1, 64; ld.u32 %r0, [%y];"), "", ""},
		"one arrives, one waits twice": {two("bar.arrive 1, 64;", "bar.sync 1, 64; bar.sync 1, 64;"), class, "thread=32,0,0 .* waits at barrier 1, but warp 0 has returned"},
		"each for itself":              {two("bar.sync 1, 32; @%p3 st.u32 [%x+20], %t;", "bar.sync 2, 32; @%p7 ld.u32 %r0, [%x+20];"), race, "thread=40,0,0 .* reads .* which thread 3,0,0 has written with no barrier between"},
	} {
		if name == "one arrives, one waits" { // of one thread what it has written
			o.body = strings.Replace(o.body, "st.u32", "setp.eq.u32 %p1, %t, 0; @%p1 st.u32", 1)
		}
		o.run(t, name, 1, false)
	}
	// A barrier that only the block before came to.
	arrives := two("@!%p6 bra END; bar.arrive 1, 64;", "@%p6 bra END; bar.sync 1, 64;")
	ordered{arrives, class, "block=1,0,0 thread=32,0,0 .* waits at barrier 1, but warp 0 has returned"}.run(t, "one arrives in the block before", 2, false)
}

// TestBlocksAnew: nothing of a block is there in the next one that its worker executes.
func TestBlocksAnew(t *testing.T) {
	const uninitialised = "uninitialised"
	twice := func(first, second string) string {
		return "@!%p6 bra SECOND; " + first + " bra.uni END;\nSECOND: " + second + "\nEND:"
	}
	for name, c := range map[string]struct {
		ordered
		blocks int
	}{
		"local memory": {ordered{".local .align 4 .b8 a[8]; mov.u64 %d0, a; " + twice("st.local.u32 [%d0], %t;", "ld.local.u32 %r0, [%d0];"), uninitialised, "block=1,0,0 thread=0,0,0 .* reads local memory"}, 2},
		"a register":   {ordered{twice("mov.u32 %r0, %t;", "st.global.u32 [%y], %r0;"), uninitialised, "block=1,0,0 thread=0,0,0 .* reads a register"}, 2},
		// A copy that nobody waited for does not land in the shared memory of another.
		"a copy": {ordered{twice("@!%p3 bra END; mov.u32 %r0, s; cp.async.ca.shared.global [%r0], [%x], 4;",
			"@!%p3 bra END; st.shared.u32 [s], %t; cp.async.wait_all; ld.shared.u32 %r0, [s]; setp.ne.u32 %p1, %r0, %t; @%p1 trap;"), "", ""}, 2},
		"what is counted of barriers": {ordered{"bar.sync 0; bar.sync 0; bar.sync 0; setp.ne.u32 %p1, %b, 500; @%p1 ret; @%p3 st.global.u32 [%x+20], %t; @%p7 ld.global.u32 %r0, [%x+20];",
			"race", "block=500,0,0 thread=40,0,0 .* reads .* which thread 3,0,0 has written with no barrier between"}, 501},
	} {
		c.run(t, name, c.blocks, false)
	}
}

// TestWords: one word, or a part of it, that several threads touch.
func TestWords(t *testing.T) {
	const ofWarp, between, launch = " with no barrier of the warp between", " with no barrier between", " in this launch"
	const reads, writes = "thread=40,0,0 .* reads .* which thread 3,0,0 has written" + between, "thread=40,0,0 .* writes .* which thread 3,0,0 has read" + between
	for name, o := range map[string]ordered{
		// Of the bytes that two have touched a stamp is of both, the others are the last one's.
		"a word of which another read a part":  {"@%p3 ld.u16 %r0, [%x+20]; @%p7 ld.u32 %r1, [%x+20]; @%p7 st.u16 [%x+22], %r1;", "", ""},
		"the part of a word that another read": {"@%p3 ld.u16 %r0, [%x+20]; @%p7 ld.u32 %r1, [%x+20]; @%p7 st.u8 [%x+21], %r1;", "race", "thread=40,0,0 .* writes .* which several warps have read" + between},
		"a row of which another read a part":   {"mad.wide.u32 %d0, %l, 4, %x; @%p3 ld.u16 %r0, [%x+32]; @%p8 ld.u32 %r1, [%d0]; @%p7 st.u16 [%x+34], %r1;", "", ""},
		"bytes of a word beside each other":    {"@%p3 st.u8 [%y+20], %t; @%p7 st.u8 [%y+21], %t; @%p7 ld.u8 %r0, [%y+21];", "", ""},
		"a byte of two threads, after another": {"@%p3 st.u8 [%y+20], %t; @%p4 st.u8 [%y+21], %t; @%p7 ld.u8 %r0, [%y+21];", "race", "thread=40,0,0 .* reads .* which thread 4,0,0 has written" + between},
		"a byte that was not written":          {"@%p3 st.u8 [%y+20], %t; @%p3 ld.u16 %r0, [%y+20];", "uninitialised", "thread=3,0,0 .* reads"},

		"a volatile read after a plain one": {"@%p3 ld.u32 %r0, [%x+20]; @%p7 ld.volatile.u32 %r1, [%x+20]; @%p7 red.add.u32 [%x+20], 1;", "race", "thread=40,0,0 .* changes .* which several warps have read" + between},
		"volatile reads of both":            {"@%p3 ld.volatile.u32 %r0, [%x+20]; @%p7 ld.volatile.u32 %r1, [%x+20]; @%p7 red.add.u32 [%x+20], 1;", "", ""},
		"a volatile read, a plain write":    {"@%p3 ld.volatile.u32 %r0, [%x+20]; @%p7 st.u32 [%x+20], %t;", "race", writes},
		"a plain read, a volatile write":    {"@%p3 ld.u32 %r0, [%x+20]; @%p7 st.volatile.u32 [%x+20], %t;", "race", writes},
		"a plain write, a volatile read":    {"@%p3 st.u32 [%x+20], %t; @%p7 ld.volatile.u32 %r0, [%x+20];", "race", reads},
		"a volatile write, a plain read":    {"@%p3 st.volatile.u32 [%x+20], %t; @%p7 ld.u32 %r0, [%x+20];", "race", reads},
		"volatile writes of both":           {"@%p3 st.volatile.u32 [%x+20], %t; @%p7 st.volatile.u32 [%x+20], %t;", "", ""},
		"a plain write, and another":        {"@%p3 st.u32 [%x+20], %t; @%p7 st.volatile.u32 [%x+20], %t;", "race", "thread=40,0,0 .* writes .* which thread 3,0,0 has written" + between},
		"the last word of a volatile read":  {"@%p3 st.u32 [%x+28], %t; @%p7 ld.volatile.v4.u32 {%r0, %r1, %r2, %r3}, [%x+16];", "race", reads},

		"read twice and written":           {"@%p3 ld.u32 %r0, [%x+20]; @%p3 ld.u32 %r1, [%x+20]; @%p3 st.u32 [%x+20], %t;", "", ""},
		"read by another before a barrier": {"@%p3 ld.u32 %r0, [%x+20]; bar.sync 0; @%p7 ld.u32 %r1, [%x+20]; @%p7 st.u32 [%x+20], %t;", "", ""},
		"read by one before a warp's":      {"@%p3 ld.u32 %r0, [%x+20]; bar.warp.sync -1; @%p4 ld.u32 %r1, [%x+20]; @%p4 st.u32 [%x+20], %t;", "", ""},
		"read by two before a warp's":      {"@%p3 ld.u32 %r0, [%x+20]; @%p4 ld.u32 %r0, [%x+20]; bar.warp.sync -1; @%p4 ld.u32 %r1, [%x+20]; @%p4 st.u32 [%x+20], %t;", "", ""},
		"read by three":                    {"@%p3 ld.u32 %r0, [%x+20]; @%p4 ld.u32 %r0, [%x+20]; @%p5 ld.u32 %r1, [%x+20]; @%p5 st.u32 [%x+20], %t;", "race", "thread=5,0,0 .* which several threads of warp 0 have read" + ofWarp},
	} {
		o.run(t, name, 1, false)
		o.run(t, name, 1, true)
	}
	for name, o := range map[string]ordered{
		"beyond the end":      {"@%p3 st.shared.u32 [s+512], %t;", "out-of-bounds", "thread=3,0,0 .* writes shared memory at 0x200, beyond the end"},
		"beyond all that is":  {"@%p3 st.shared.u32 [s+32768], %t;", "out-of-bounds", "thread=3,0,0 .* writes 4 bytes at 0x8000, shared memory of the block has [0-9]{3}$"},
		"the last word of it": {"@%p3 st.shared.u32 [s+508], %t;", "", ""},
	} {
		o.run(t, name, 1, true)
	}
	ordered{"add.u64 %x, %x, 137438953472; ld.global.u32 %r0, [%x+20];", "out-of-bounds", "thread=0,0,0 .* reads 4 bytes at 0x[0-9a-f]+, which is no memory of a device"}.run(t, "no device's", 1, false)
	// Blocks have one global memory, and each its own shared memory.
	const both = "@!%p6 bra SECOND; @%p3 ld.u32 %r0, [%x+20]; ret;\nSECOND: "
	several := "block=1,0,0 thread=40,0,0 .* writes .* which several blocks have read" + launch
	for name, o := range map[string]ordered{
		"read in another block":            {both + "@%p7 ld.u32 %r0, [%x+20]; @%p7 st.u32 [%x+20], %t;", "race", several},
		"written in another, in part":      {"@!%p6 bra SECOND; @%p3 st.u8 [%x+21], %t; ret;\nSECOND: @%p7 st.u8 [%x+21], %t;", "race", "block=1,0,0 thread=40,0,0 .* writes .* which thread 3,0,0 of block 0,0,0 has written" + launch},
		"read in another, after a barrier": {both + "bar.sync 0; @%p7 ld.u32 %r0, [%x+20]; @%p7 st.u32 [%x+20], %t;", "race", several},
	} {
		o.run(t, name, 2, false)
		ordered{o.body, "", ""}.run(t, name, 2, true)
	}
	never := "mov.u32 %r0, s; cp.async.ca.shared.global [%r0], [%x], 4; bra.uni END;\nSECOND: st.shared.u32 [s], %t;\nEND:" // waited for
	ordered{"@!%p3 ret; @!%p6 bra SECOND; " + never, "", ""}.run(t, "a copy of the block before", 2, false)
}
