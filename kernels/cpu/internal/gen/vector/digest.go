package main

import (
	"fmt"

	"github.com/lockstep-ml/lockstep/kernels/cpu/internal/gen/emit"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Multipliers of kernels.Mix.
const (
	hashIndex = 0x9e3779b97f4a7c15
	hashBits  = 0xbf58476d1ce4e5b9
	hashMixA  = 0x94d049bb133111eb
	hashMixB  = 0xff51afd7ed558ccd
)

// Fields of hashArgs.
const (
	hashN = 8 * iota
	hashX
	hashOld
	hashStart
	hashSumA
	hashSumB
	hashSpecial
	hashDiffer
)

// digester emits a loop over vectors of float32 that adds up the two mixes of
// its elements, in 64-bit lanes: the even elements of a vector, then the odd ones.
type digester struct {
	emit.ISA
	c          *emit.Constants
	args, n, x reg.GPVirtual
	index      [2]reg.VecVirtual // the first operand of the mixes, of even and of odd elements
	mixA, mixB factor
	sumA, sumB reg.VecVirtual
	zero       reg.VecVirtual
	finite     reg.VecVirtual    // sums of 0*x: 0, or NaN where an x is not finite
	low        reg.OpmaskVirtual // the low halves of 64-bit lanes (wide)
}

// factor is a 64-bit multiplier. Where lanes multiply 32 bits only, its high half
// is at hand too.
type factor struct{ all, high reg.VecVirtual }

func (d *digester) factor(u uint64) factor {
	f := factor{all: d.Virtual()}
	d.move(d.c.Word(u), f.all)
	if !d.Wide() {
		f.high = d.Virtual()
		d.move(d.c.Word(u>>32), f.high)
	}
	return f
}

// begin starts the function and the loop.
func (d *digester) begin(name string) {
	build.TEXT(name+d.Name, build.NOSPLIT, "func(p *byte)")
	build.Pragma("noescape")
	d.args, d.n, d.x = build.GP64(), build.GP64(), build.GP64()
	build.Load(build.Param("p"), d.args)
	build.MOVQ(d.field(hashN), d.n)
	build.MOVQ(d.field(hashX), d.x)
	for i := range d.index {
		d.index[i] = d.Virtual()
		build.VPBROADCASTQ(d.field(hashStart), d.index[i])
		lanes := d.c.Words(fmt.Sprint("lanes", i), func(lane int) uint64 { return uint64(2*lane+i) * hashIndex })
		build.VPADDQ(lanes, d.index[i], d.index[i])
	}
	d.mixA, d.mixB = d.factor(hashMixA), d.factor(hashMixB)
	d.sumA, d.sumB, d.zero, d.finite = d.Virtual(), d.Virtual(), d.Virtual(), d.Virtual()
	for _, r := range []reg.VecVirtual{d.sumA, d.sumB, d.zero, d.finite} {
		d.Zero(r)
	}
	if d.Wide() {
		m := build.GP32()
		build.MOVL(operand.U32(0x5555), m)
		d.low = build.K()
		build.KMOVW(m, d.low)
	}
}

func (d *digester) field(off int) operand.Mem { return operand.Mem{Base: d.args, Disp: off} }

// end closes the loop over the label "loop" and stores the results.
func (d *digester) end() {
	build.ADDQ(operand.U32(uint32(d.Bytes())), d.x)
	build.SUBQ(operand.Imm(uint64(d.Lanes)), d.n)
	build.JNE(operand.LabelRef("loop"))
	special := build.GP32()
	const unordered = 3
	if d.Wide() {
		k := build.K()
		build.VCMPPS(operand.Imm(unordered), d.finite, d.finite, k)
		build.KMOVW(k, special)
	} else {
		build.VCMPPS(operand.Imm(unordered), d.finite, d.finite, d.finite)
		build.VMOVMSKPS(d.finite, special)
	}
	build.MOVQ(special.As64(), d.field(hashSpecial))
	build.MOVQ(d.total(d.sumA), d.field(hashSumA))
	build.MOVQ(d.total(d.sumB), d.field(hashSumB))
	build.VZEROUPPER()
	build.RET()
}

// hash emits the digest of n float32 at x, a multiple of the vector, of which
// the first mixes start = id + (index+1)*hashIndex. If any of them is not finite
// it says so in special, and the sums are void.
func hash(s emit.ISA, c *emit.Constants) {
	d := &digester{ISA: s, c: c}
	d.begin("hash")
	bits := d.factor(hashBits)
	build.Label("loop")
	raw := d.load()
	if s.Wide() {
		// (bits+1) * hashBits; bits is 32 wide, and all ones would be NaN.
		even, odd := d.Virtual(), d.Virtual()
		build.VPADDD(c.Bits(1), raw, raw)
		build.VMOVDQA32_Z(raw, d.low, even)
		build.VPSRLQ(operand.Imm(32), raw, odd)
		build.VPMULLQ(bits.all, even, even)
		build.VPMULLQ(bits.all, odd, odd)
		d.mix(0, []reg.VecVirtual{even, odd}, plain)
	} else {
		for half := range 2 {
			if half == 1 {
				build.VPSRLQ(operand.Imm(32), raw, raw)
			}
			t, v := d.Virtual(), d.Virtual()
			build.VPMULUDQ(bits.high, raw, t)
			build.VPMULUDQ(bits.all, raw, v)
			build.VPSLLQ(operand.Imm(32), t, t)
			build.VPADDQ(t, v, v)
			build.VPADDQ(bits.all, v, v)
			d.mix(half, []reg.VecVirtual{v}, plain)
		}
	}
	d.end()
}

// plain adds the mixes of all elements of a half.
func plain(_ int, v, sum reg.VecVirtual) { build.VPADDQ(v, sum, sum) }

// load reads a vector and looks for what is not finite.
func (d *digester) load() reg.VecVirtual {
	raw := d.Virtual()
	d.move(operand.Mem{Base: d.x}, raw)
	build.VFMADD231PS(d.zero, raw, d.finite)
	return raw
}

// hashChanged is hash over the places at which x and old differ, each as if it
// held bits 1; differ counts them. It is void if x holds what is not finite.
func hashChanged(s emit.ISA, c *emit.Constants) {
	d := &digester{ISA: s, c: c}
	d.begin("hashChanged")
	old, differ, count := build.GP64(), build.GP64(), build.GP32()
	build.MOVQ(d.field(hashOld), old)
	build.XORQ(differ, differ)
	build.Label("loop")
	raw := d.load()
	var kept [2]reg.OpmaskVirtual
	if s.Wide() {
		build.VPXORD(operand.Mem{Base: old}, raw, raw)
		for half, mask := range []uint64{1<<32 - 1, (1<<32 - 1) << 32} {
			kept[half] = build.K()
			build.VPTESTMQ(c.Word(mask), raw, kept[half])
			build.KMOVB(kept[half], count)
			build.POPCNTL(count, count)
			build.ADDQ(count.As64(), differ)
		}
	} else {
		build.VPCMPEQD(operand.Mem{Base: old}, raw, raw)
		build.VMOVMSKPS(raw, count)
		build.XORL(operand.Imm(0xff), count)
		build.POPCNTL(count, count)
		build.ADDQ(count.As64(), differ)
	}
	add := func(half int, v, sum reg.VecVirtual) {
		if s.Wide() {
			build.VPADDQ(v, sum, kept[half], sum)
			return
		}
		m := d.Virtual()
		build.VPSHUFD(operand.Imm([]uint64{0xa0, 0xf5}[half]), raw, m) // the half's lanes, twice
		build.VPANDN(v, m, m)
		build.VPADDQ(m, sum, sum)
	}
	var one uint64 = hashBits
	v := []reg.VecVirtual{d.Virtual(), d.Virtual()}
	for half := range v {
		d.move(c.Word(2*one), v[half])
		if !s.Wide() {
			d.mix(half, v[half:half+1], add)
		}
	}
	if s.Wide() {
		d.mix(0, v, add)
	}
	build.ADDQ(operand.U32(uint32(s.Bytes())), old)
	build.MOVQ(differ, d.field(hashDiffer))
	d.end()
}

// mix finishes the mixes of halves of a vector, the first one of which is given,
// from v = the second operand of their first step, and moves the index on. add
// adds a half to a sum. Both halves go side by side where registers suffice: the
// chain of one is long.
func (d *digester) mix(first int, v []reg.VecVirtual, add func(half int, v, sum reg.VecVirtual)) {
	var step uint64 = hashIndex
	for i := range v {
		d.xor(d.index[first+i], v[i])
		build.VPADDQ(d.c.Word(uint64(d.Lanes)*step), d.index[first+i], d.index[first+i])
	}
	d.foldHalves(v)
	d.multiply(d.mixA, v)
	d.fold(v, func(x, t reg.VecVirtual) { build.VPSRLQ(operand.Imm(29), x, t) })
	for i := range v {
		add(first+i, v[i], d.sumA)
	}
	d.foldHalves(v)
	d.multiply(d.mixB, v)
	d.foldHalves(v)
	for i := range v {
		add(first+i, v[i], d.sumB)
	}
}

// fold is v ^= shift(v).
func (d *digester) fold(v []reg.VecVirtual, shift func(x, t reg.VecVirtual)) {
	t := make([]reg.VecVirtual, len(v))
	for i := range v {
		t[i] = d.Virtual()
		shift(v[i], t[i])
	}
	for i := range v {
		d.xor(t[i], v[i])
	}
}

// foldHalves is v ^= v>>32. A shuffle has more execution ports than a shift.
func (d *digester) foldHalves(v []reg.VecVirtual) {
	d.fold(v, func(x, t reg.VecVirtual) {
		if d.Wide() {
			build.VPSHUFD_Z(operand.Imm(0xf5), x, d.low, t)
			return
		}
		build.VPSRLQ(operand.Imm(32), x, t)
	})
}

// multiply is v *= f, modulo 2^64.
func (d *digester) multiply(f factor, v []reg.VecVirtual) {
	for _, x := range v {
		if d.Wide() {
			build.VPMULLQ(f.all, x, x)
			continue
		}
		t, u := d.Virtual(), d.Virtual()
		build.VPSRLQ(operand.Imm(32), x, t)
		build.VPMULUDQ(f.all, t, t)
		build.VPMULUDQ(f.high, x, u)
		build.VPADDQ(u, t, t)
		build.VPSLLQ(operand.Imm(32), t, t)
		build.VPMULUDQ(f.all, x, x)
		build.VPADDQ(t, x, x)
	}
}

func (d *digester) xor(x operand.Op, v reg.VecVirtual) {
	if d.Wide() {
		build.VPXORQ(x, v, v)
		return
	}
	build.VPXOR(x, v, v)
}

func (d *digester) move(m operand.Mem, r reg.VecVirtual) {
	if d.Wide() {
		build.VMOVDQU64(m, r)
		return
	}
	build.VMOVDQU(m, r)
}

// total is the sum of the 64-bit lanes of r.
func (d *digester) total(r reg.VecVirtual) reg.GPVirtual {
	x := build.XMM()
	if d.Wide() {
		y := build.YMM()
		build.VEXTRACTI64X4(operand.Imm(1), r, y)
		build.VPADDQ(y, r.AsY(), r.AsY())
	}
	build.VEXTRACTI128(operand.Imm(1), r.AsY(), x)
	build.VPADDQ(x, r.AsX(), x)
	hi, lo := build.GP64(), build.GP64()
	build.VPEXTRQ(operand.Imm(1), x, hi)
	build.VMOVQ(x, lo)
	build.ADDQ(hi, lo)
	return lo
}

// control emits floatControl: the floating-point control and status register.
func control() {
	build.TEXT("floatControl", build.NOSPLIT, "func() uint32")
	m, r := build.AllocLocal(8), build.GP32()
	build.STMXCSR(m)
	build.MOVL(m, r)
	build.Store(r, build.ReturnIndex(0))
	build.RET()
}
