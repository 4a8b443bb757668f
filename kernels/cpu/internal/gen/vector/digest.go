package main

import (
	"fmt"

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

// words emits a read-only vector of eight 64-bit words.
func words(name string, f func(i int) uint64) operand.Mem {
	m := build.GLOBL("words"+name, build.RODATA|build.NOPTR)
	for i := range 8 {
		build.DATA(8*i, operand.U64(f(i)))
	}
	return m
}

// hasher is the state of the digest loop.
type hasher struct {
	x                reg.GPVirtual
	index, step      reg.VecVirtual
	bits, mixA, mixB reg.VecVirtual
	abs, inf, nan    reg.VecVirtual
	sumA, sumB       reg.VecVirtual
	nonFinite        reg.GPVirtual
}

func constant(u uint64) reg.VecVirtual {
	r := build.ZMM()
	build.VMOVDQU64(words(fmt.Sprintf("_%x", u), func(int) uint64 { return u }), r)
	return r
}

func cleared() reg.VecVirtual {
	r := build.ZMM()
	build.VPXORQ(r, r, r)
	return r
}

// hash emits the digest of n float32 at x of which the first mixes start = id +
// (index+1)*hashIndex. Fields of hashArgs: n, x, start, then the sums of the two
// mixes and the number of elements that are not finite.
func hash() {
	build.TEXT("hashAVX512", build.NOSPLIT, "func(p *byte)")
	build.Pragma("noescape")
	args, n := build.GP64(), build.GP64()
	build.Load(build.Param("p"), args)
	field := func(i int) operand.Mem { return operand.Mem{Base: args, Disp: 8 * i} }
	h := hasher{x: build.GP64(), index: build.ZMM(), nonFinite: build.GP64()}
	build.MOVQ(field(0), n)
	build.MOVQ(field(1), h.x)
	build.VPBROADCASTQ(field(2), h.index)
	build.VPADDQ(words("Lane", func(i int) uint64 { return uint64(i) * hashIndex }), h.index, h.index)
	var step uint64 = hashIndex
	step *= 8
	h.step, h.bits, h.mixA, h.mixB = constant(step), constant(hashBits), constant(hashMixA), constant(hashMixB)
	h.abs, h.inf, h.nan = constant(0x7fffffff), constant(0x7f800000), constant(0x7fc00000)
	h.sumA, h.sumB = cleared(), cleared()
	build.XORQ(h.nonFinite, h.nonFinite)
	v := build.ZMM()
	plain := func(t, sum reg.Register) { build.VPADDQ(t, sum, sum) }
	// Sixteen at a time while all of them are finite.
	abs32, inf32 := constant(0x7fffffff7fffffff), constant(0x7f8000007f800000)
	build.Label("sixteen")
	build.CMPQ(n, operand.Imm(16))
	build.JLT(operand.LabelRef("eight"))
	k16 := build.K()
	build.VPANDD(operand.Mem{Base: h.x}, abs32, v)
	build.VPCMPD(operand.Imm(notBelow), inf32, v, k16)
	build.KORTESTW(k16, k16)
	build.JNE(operand.LabelRef("eight"))
	for d := 0; d < 64; d += 32 {
		build.VPMOVZXDQ(operand.Mem{Base: h.x, Disp: d}, v)
		h.mix(v, plain)
	}
	build.ADDQ(operand.Imm(64), h.x)
	build.SUBQ(operand.Imm(16), n)
	build.JMP(operand.LabelRef("sixteen"))
	build.Label("eight")
	build.CMPQ(n, operand.Imm(8))
	build.JLT(operand.LabelRef("rest"))
	build.VPMOVZXDQ(operand.Mem{Base: h.x}, v)
	h.special(v)
	h.mix(v, plain)
	build.ADDQ(operand.Imm(32), h.x)
	build.SUBQ(operand.Imm(8), n)
	build.JMP(operand.LabelRef("sixteen"))
	build.Label("rest")
	build.TESTQ(n, n)
	build.JE(operand.LabelRef("done"))
	k, m := build.K(), build.GP32()
	build.MOVL(operand.U32(0xff), m)
	build.BZHIL(n.As32(), m, m)
	build.KMOVW(m, k)
	build.VPMOVZXDQ_Z(operand.Mem{Base: h.x}, k, v)
	h.special(v)
	h.mix(v, func(t, sum reg.Register) { build.VPADDQ(t, sum, k, sum) })
	build.Label("done")
	build.MOVQ(h.nonFinite, field(5))
	for i, sum := range []reg.VecVirtual{h.sumA, h.sumB} {
		build.MOVQ(total(sum), field(3+i))
	}
	build.VZEROUPPER()
	build.RET()
}

// Comparisons of integers.
const notBelow, above = 5, 6

// special counts the elements that are not finite and makes all NaN one.
func (h hasher) special(v reg.VecVirtual) {
	t, k, count := build.ZMM(), build.K(), build.GP32()
	build.VPANDQ(h.abs, v, t)
	build.VPCMPQ(operand.Imm(notBelow), h.inf, t, k)
	build.KMOVB(k, count)
	build.POPCNTL(count, count)
	build.ADDQ(count.As64(), h.nonFinite)
	build.VPCMPQ(operand.Imm(above), h.inf, t, k)
	build.VMOVDQA64(h.nan, k, v)
}

// mix adds eight elements; add adds a vector to a sum.
func (h hasher) mix(v reg.VecVirtual, add func(t, sum reg.Register)) {
	t := build.ZMM()
	build.VPMULLQ(h.bits, v, v)
	build.VPADDQ(h.bits, v, v)
	build.VPXORQ(h.index, v, v)
	build.VPADDQ(h.step, h.index, h.index)
	xorShift := func(by uint64) {
		build.VPSRLQ(operand.Imm(by), v, t)
		build.VPXORQ(t, v, v)
	}
	xorShift(32)
	build.VPMULLQ(h.mixA, v, v)
	xorShift(29)
	add(v, h.sumA)
	xorShift(32)
	build.VPMULLQ(h.mixB, v, v)
	xorShift(32)
	add(v, h.sumB)
}

// total is the sum of the eight words of z.
func total(z reg.VecVirtual) reg.GPVirtual {
	y, x := build.YMM(), build.XMM()
	build.VEXTRACTI64X4(operand.Imm(1), z, y)
	build.VPADDQ(y, z.AsY(), y)
	build.VEXTRACTI128(operand.Imm(1), y, x)
	build.VPADDQ(x, y.AsX(), x)
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
