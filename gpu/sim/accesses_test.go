//go:build sim

package sim_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

const accessBytes = 2048 // what an access of accessKernel may reach

// accessKernel has one warp of two do an access to where a table says for each lane, and
// one thread before it and one after it something to the word at at: 1 reads it, 2 writes
// it. Shared memory is written before, but for the word at hole; then base is nothing.
const accessKernel = `.visible .entry k(.param .u64 base, .param .u64 table, .param .u32 warp, .param .u32 mask, .param .u32 hole, .param .u32 at, .param .u32 first, .param .u32 before, .param .u32 last, .param .u32 after) {
.reg .b32 %%t, %%l, %%w, %%h, %%o, %%a, %%n, %%e<4>; .reg .b64 %%x, %%y, %%b, %%d; .reg .pred %%p<4>; .shared .align 16 .b8 s[2048];
ld.param.u64 %%b, [base]; ld.param.u64 %%y, [table]; ld.param.u32 %%h, [hole]; mov.u32 %%t, %%tid.x; mov.u32 %%l, %%laneid; mov.u32 %%w, %%warpid;
mad.wide.u32 %%y, %%l, 4, %%y; ld.global.u32 %%a, [%%y]; mov.u32 %%e0, 0; mov.u32 %%e1, 1; mov.u32 %%e2, 2; mov.u32 %%e3, 3;
setp.ne.u64 %%p0, %%b, 0; @%%p0 bra FILLED; mov.u64 %%b, s; cvta.shared.u64 %%b, %%b; shl.b32 %%o, %%t, 2;
FILL: setp.ne.u32 %%p1, %%o, %%h; cvt.u64.u32 %%d, %%o; add.u64 %%d, %%d, %%b; @%%p1 st.u32 [%%d], %%t; add.u32 %%o, %%o, 256; setp.lt.u32 %%p1, %%o, 2048; @%%p1 bra FILL;
bar.sync 0;
FILLED: ld.param.u32 %%o, [at]; cvt.u64.u32 %%d, %%o; add.u64 %%d, %%d, %%b;
ld.param.u32 %%o, [first]; setp.eq.u32 %%p0, %%o, %%t; ld.param.u32 %%n, [before];
setp.eq.and.u32 %%p1, %%n, 1, %%p0; @%%p1 ld.u32 %%o, [%%d]; setp.eq.and.u32 %%p1, %%n, 2, %%p0; @%%p1 st.u32 [%%d], %%n;
ld.param.u32 %%o, [mask]; shr.u32 %%o, %%o, %%l; and.b32 %%o, %%o, 1; setp.eq.u32 %%p0, %%o, 1; ld.param.u32 %%o, [warp]; setp.eq.and.u32 %%p0, %%o, %%w, %%p0;
cvt.u64.u32 %%x, %%a; add.u64 %%x, %%x, %%b; @%%p0 %s;
ld.param.u32 %%o, [last]; setp.eq.u32 %%p0, %%o, %%t; ld.param.u32 %%n, [after];
setp.eq.and.u32 %%p1, %%n, 1, %%p0; @%%p1 ld.u32 %%o, [%%d]; setp.eq.and.u32 %%p1, %%n, 2, %%p0; @%%p1 st.u32 [%%d], %%n;
ret;
}
`

// accessText is the kernel whose access reads, r, or writes, w, so many bytes a lane.
func accessText(does string, size int) string {
	operand := map[int][2]string{4: {"u32", "%e0"}, 8: {"v2.u32", "{%e0, %e1}"}, 16: {"v4.u32", "{%e0, %e1, %e2, %e3}"}}[size]
	op := fmt.Sprintf("ld.%s %s, [%%x]", operand[0], operand[1])
	if does == "w" {
		op = fmt.Sprintf("st.%s [%%x], %s", operand[0], operand[1])
	}
	return header + fmt.Sprintf(accessKernel, op)
}

// patterns are how the lanes of a warp lie in memory, in elements: the judgement of an
// access has a way of its own for most of them.
var patterns = map[string]struct {
	mask uint32
	of   func(l int) int
}{
	"one":               {^uint32(0), func(int) int { return 5 }},
	"a row":             {^uint32(0), func(l int) int { return l + 2 }},
	"sixteens":          {^uint32(0), func(l int) int { return l>>4*20 + l&15 }},
	"sixteen, again":    {^uint32(0), func(l int) int { return l & 15 }},
	"eights":            {^uint32(0), func(l int) int { return l>>3*12 + l&7 }},
	"eight, again":      {^uint32(0), func(l int) int { return l & 7 }},
	"eights, one again": {^uint32(0), func(l int) int { return l>>3%3*12 + l&7 }},
	"one of eight":      {^uint32(0), func(l int) int { return l >> 3 * 3 }},
	"apart":             {^uint32(0), func(l int) int { return l*7%32*3 + 1 }},
	"some of a row":     {0xfffefffe, func(l int) int { return l }},
	"one of some":       {0x00ff0ff0, func(int) int { return 9 }},
	"one lane":          {1 << 18, func(l int) int { return l }},
	"eights, crossed":   {^uint32(0), func(l int) int { return (3-l>>3)*8 + l&7 }},
}

// access is a launch of a kernel of accessText, and what must be found in it.
type access struct {
	does          string
	shared        bool
	size, warp    int
	pattern       string
	hole, at      int // bytes; -1 is none
	first, before int
	last, after   int
	class, says   string
}

func (a access) run(t *testing.T, r *rig) (code int) {
	p := patterns[a.pattern]
	table := make([]uint32, 32)
	for l := range table {
		table[l] = uint32(p.of(l) * a.size)
	}
	var base uint64
	if !a.shared {
		base = r.alloc(accessBytes)
		for o := 0; o < accessBytes; {
			n := accessBytes - o
			if a.hole >= o {
				n = a.hole - o
			}
			r.must("cuMemsetD8_v2", base+uint64(o), 0, uint64(n))
			o += n + 4
		}
	}
	f := r.function(r.module(accessText(a.does, a.size)), "k")
	args := []any{base, r.upload(words(table...)), a.warp, p.mask, a.hole, max(a.at, 0), a.first, a.before, a.last, a.after}
	if a.class == "" { // where nothing is wrong nothing is the second time
		code = r.run(f, dim{1}, dim{64}, 0, args...)
	}
	return max(code, r.run(f, dim{1}, dim{64}, 0, args...))
}

// lanesAt are the threads whose element of an access is that of a lane.
func (a access) lanesAt(lane int) (at []int) {
	p := patterns[a.pattern]
	for l := range 32 {
		if p.mask>>l&1 == 1 && p.of(l) == p.of(lane) {
			at = append(at, 32*a.warp+l)
		}
	}
	return at
}

// word is the first or the last word of a lane's element.
func (a access) word(lane int) int {
	return patterns[a.pattern].of(lane)*a.size + lane%2*(a.size-4)
}

// other is a thread of a warp that is none of these.
func other(warp int, these []int) int {
	for l := 32 * warp; ; l++ {
		if !slices.Contains(these, l) {
			return l
		}
	}
}

// readings are accesses that read, each with what may be wrong with the element of a lane.
func (a access) readings(lane int) (out []access) {
	who := a.lanesAt(lane)
	a.hole, a.at = -1, a.word(lane)
	readers := fmt.Sprintf("thread %d,0,0 has", who[0])
	if len(who) > 1 {
		readers = fmt.Sprintf("several threads of warp %d have", a.warp)
	}
	hole := a
	hole.hole, hole.class, hole.says = a.at, "uninitialised", fmt.Sprintf("thread=%d,0,0 .* reads .* which was not written", who[0])
	out = append(out, hole)
	for _, warp := range []int{0, 1} {
		b := " with no barrier of the warp between"
		if warp != a.warp {
			b = " with no barrier between"
		}
		if len(who) < 32 || warp != a.warp {
			late, early := a, a
			late.last, late.after, late.class = other(warp, who), 2, "race"
			late.says = fmt.Sprintf("thread=%d,0,0 .* writes .* which %s read%s", late.last, readers, b)
			early.first, early.before, early.class = other(warp, who), 2, "race"
			early.says = fmt.Sprintf("thread=%d,0,0 .* reads .* which thread %d,0,0 has written%s", who[0], early.first, b)
			if warp <= a.warp { // warps run in their order
				out = append(out, early)
			}
			if warp >= a.warp {
				out = append(out, late)
			}
		}
	}
	if len(who) == 1 {
		own := a
		own.first, own.before, own.last, own.after = who[0], 2, who[0], 2
		out = append(out, own)
	}
	return out
}

// writings are such that write.
func (a access) writings(lane int) (out []access) {
	who := a.lanesAt(lane)
	a.hole, a.at = -1, a.word(lane)
	for l := range 32 {
		if at := a.lanesAt(l); patterns[a.pattern].mask>>l&1 == 1 && at[0] < 32*a.warp+l { // as an earlier lane's
			a.class, a.says = "race", fmt.Sprintf("thread=%d,0,0 .* writes .* which thread %d,0,0 has written with no barrier of the warp", 32*a.warp+l, at[0])
			return []access{a}
		}
	}
	does := []string{"", "read", "written"}
	for _, warp := range []int{0, 1} {
		b := " with no barrier of the warp between"
		if warp != a.warp {
			b = " with no barrier between"
		}
		for k := 1; k <= 2; k++ {
			late, early := a, a
			late.last, late.after, late.class = other(warp, who), k, "race"
			late.says = fmt.Sprintf("thread=%d,0,0 .* %s .* which thread %d,0,0 has written%s", late.last, []string{"", "reads", "writes"}[k], who[0], b)
			early.first, early.before, early.class = other(warp, who), k, "race"
			early.says = fmt.Sprintf("thread=%d,0,0 .* writes .* which thread %d,0,0 has %s%s", who[0], early.first, does[k], b)
			if warp <= a.warp {
				out = append(out, early)
			}
			if warp >= a.warp {
				out = append(out, late)
			}
			own := a
			own.first, own.before, own.last, own.after = who[0], k, who[0], k
			out = append(out, own)
		}
	}
	return out
}

// TestAccesses: what is wrong with one lane's word of an access is found, of whichever lane
// and however the lanes lie, and nothing where nothing is wrong.
func TestAccesses(t *testing.T) {
	count := 0
	for name, p := range patterns {
		for _, size := range []int{4, 8, 16} {
			for k, lane := range []int{0, 9, 18, 31} {
				if p.mask>>lane&1 == 0 {
					continue
				}
				a := access{size: size, pattern: name, warp: k / 2 % 2}
				for _, shared := range []bool{false, true} {
					a.shared = shared
					a.does = "r"
					cases := a.readings(lane)
					a.does = "w"
					for _, c := range append(cases, a.writings(lane)...) {
						r := start(t, 0)
						code, want := c.run(t, r), success
						if c.class != "" {
							want = assertion
							r.found(c.class, c.says)
						} else {
							r.clean()
						}
						if code != want {
							t.Fatalf("%+v: error %d, want %d: %s", c, code, want, findings())
						}
						if count++; t.Failed() {
							t.Fatalf("%+v", c)
						}
					}
				}
			}
		}
	}
	t.Logf("%d accesses", count)
}

// TestLastWords: a whole warp writes, or reads, words in a row of which the last one is not
// all in its allocation.
func TestLastWords(t *testing.T) {
	for _, size := range []int{4, 8, 16} {
		for _, does := range []string{"r", "w"} {
			for _, shared := range []bool{false, true} {
				text := accessText(does, size)
				r := start(t, 0)
				base, last := uint64(0), 2048/size-32 // the first lane's element
				if shared {
					text = strings.Replace(text, "s[2048]", "s[2046]", 1)
				} else {
					base, last = r.upload(make([]byte, 32*size-2)), 0
				}
				table := make([]uint32, 32)
				for l := range table {
					table[l] = uint32((last + l) * size)
				}
				hole := -1
				if shared {
					hole = 2044 // which the kernel would write before
				}
				if e := r.run(r.function(r.module(text), "k"), dim{1}, dim{64}, 0, base, r.upload(words(table...)), 1, -1, hole, 0, 0, 0, 0, 0); e != illegalAddress {
					t.Errorf("%s%d, shared %v: error %d", does, size, shared, e)
				}
				r.found("out-of-bounds", "thread=63,0,0 .* "+map[string]string{"r": "reads", "w": "writes"}[does]+" .* beyond the end of what is allocated")
			}
		}
	}
}
