package main

import (
	"github.com/lockstep-ml/lockstep/kernels/cpu/internal/gen/emit"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// squareLevels is the number of accumulators of an exact sum of squares.
const squareLevels = 3

// squares emits the exact sum of squares of n float32, a multiple of 8, at x.
// Fields of squareArgs: n, x, the start of each level, then for each level and
// lane the sums with the start in them, and per lane the union of what no level
// took.
//
// A square is exact in float64. A level that starts at 1.5*2^k adds the part of
// it that is a multiple of 2^(k-52), by rounding; what is left, exactly, goes
// to the next level.
func squares(s emit.ISA) {
	build.TEXT("squares"+s.Name, build.NOSPLIT, "func(p *byte)")
	build.Pragma("noescape")
	args, n, x := build.GP64(), build.GP64(), build.GP64()
	build.Load(build.Param("p"), args)
	build.MOVQ(operand.Mem{Base: args}, n)
	build.MOVQ(operand.Mem{Base: args, Disp: 8}, x)
	level := make([]reg.VecVirtual, squareLevels)
	for i := range level {
		level[i] = s.Virtual()
		build.VBROADCASTSD(operand.Mem{Base: args, Disp: 16 + 8*i}, level[i])
	}
	left := s.Virtual()
	s.Zero(left)
	build.Label("loop")
	build.CMPQ(n, operand.Imm(8))
	build.JLT(operand.LabelRef("done"))
	for d := 0; d < 32; d += 2 * s.Lanes {
		r := s.Virtual()
		build.VCVTPS2PD(operand.Mem{Base: x, Disp: d}, r)
		build.VMULPD(r, r, r)
		for i := range level {
			sum, part := s.Virtual(), s.Virtual()
			build.VADDPD(r, level[i], sum)
			build.VSUBPD(level[i], sum, part)
			build.VSUBPD(part, r, r)
			build.VMOVAPD(sum, level[i])
		}
		build.VORPD(r, left, left)
	}
	build.ADDQ(operand.Imm(32), x)
	build.SUBQ(operand.Imm(8), n)
	build.JMP(operand.LabelRef("loop"))
	build.Label("done")
	for i, r := range append(level, left) {
		build.VMOVUPD(r, operand.Mem{Base: args, Disp: 16 + 8*squareLevels + 64*i})
	}
	build.VZEROUPPER()
	build.RET()
}

// largestBits emits the greatest bit pattern of |x|.
func largestBits(s emit.ISA, c *emit.Constants) {
	f := emit.Begin(s, c, "largestBits", 1, 0)
	abs := f.Copy(f.Bits(0x7fffffff))
	acc := make([]reg.VecVirtual, 4)
	for i := range acc {
		acc[i] = f.Virtual()
		f.Zero(acc[i])
	}
	turn := 0
	f.Loop("", len(acc), false, func(l emit.Lane) {
		x := l.Load(0)
		if f.Wide() {
			build.VPANDD(abs, x, x)
		} else {
			build.VPAND(abs, x, x)
		}
		build.VPMAXUD(x, acc[turn%len(acc)], acc[turn%len(acc)])
		turn++
	})
	for d := len(acc) / 2; d >= 1; d /= 2 {
		for i := range d {
			build.VPMAXUD(acc[i+d], acc[i], acc[i])
		}
	}
	f.Result(f.Fold(acc[0], func(x, y, z operand.Op) { build.VPMAXUD(x, y, z) }))
	f.End()
}
