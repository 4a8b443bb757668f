package main

import (
	"fmt"

	"github.com/lockstep-ml/lockstep/kernels/cpu/internal/gen/emit"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// transpose emits the packing of B for A*B^T: Lanes rows of B become columns.
// dst[k*ldd + i] = src[i*lds + k] for i < Lanes and k < n, a multiple of Lanes.
// Strides are in bytes.
func transpose(s emit.ISA) {
	build.TEXT("transpose"+s.Name, build.NOSPLIT, "func(dst *float32, ldd int, src *float32, lds int, n int)")
	build.Pragma("noescape")
	dst, ldd, src, lds, n := reg.RDI, reg.R9, reg.RSI, reg.R8, reg.RCX
	build.Load(build.Param("dst"), dst)
	build.Load(build.Param("ldd"), ldd)
	build.Load(build.Param("src"), src)
	build.Load(build.Param("lds"), lds)
	build.Load(build.Param("n"), n)
	base := []reg.GPPhysical{src, reg.R10, reg.R11, reg.R12}
	for i := 1; 4*i < s.Lanes; i++ {
		build.LEAQ(operand.Mem{Base: base[i-1], Index: lds, Scale: 4}, base[i])
	}
	build.LEAQ(operand.Mem{Base: lds, Index: lds, Scale: 2}, reg.R13)
	build.Label("block")
	for i := range s.Lanes {
		m := operand.Mem{Base: base[i/4]}
		switch i % 4 {
		case 1, 2:
			m.Index, m.Scale = lds, uint8(i%4)
		case 3:
			m.Index, m.Scale = reg.R13, 1
		}
		build.VMOVUPS(m, s.Physical(i))
		m.Disp = 192
		build.PREFETCHT0(m)
	}
	out := transpose8
	if s.Wide() {
		out = transpose16
	}
	for _, r := range out(s) {
		build.VMOVUPS(r, operand.Mem{Base: dst})
		build.ADDQ(ldd, dst)
	}
	for i := 0; 4*i < s.Lanes; i++ {
		build.ADDQ(operand.U32(uint32(s.Bytes())), base[i])
	}
	build.SUBQ(operand.Imm(uint64(s.Lanes)), n)
	build.JNE(operand.LabelRef("block"))
	build.VZEROUPPER()
	build.RET()
}

// interleave emits the two steps that transpose blocks of 4x4 within the
// 128-bit lanes of four rows: register j of quarter q then holds column j of
// each lane of rows 4q to 4q+3.
func interleave(s emit.ISA, from, through func(int) reg.VecPhysical) {
	for i := 0; i < s.Lanes; i += 2 {
		build.VUNPCKLPS(from(i+1), from(i), through(i))
		build.VUNPCKHPS(from(i+1), from(i), through(i+1))
	}
	for i := 0; i < s.Lanes; i += 4 {
		build.VUNPCKLPD(through(i+2), through(i), from(i))
		build.VUNPCKHPD(through(i+2), through(i), from(i+1))
		build.VUNPCKLPD(through(i+3), through(i+1), from(i+2))
		build.VUNPCKHPD(through(i+3), through(i+1), from(i+3))
	}
}

// transpose16 gives the registers of the columns of rows Z0 to Z15, in order.
func transpose16(s emit.ISA) []reg.VecPhysical {
	lo := func(i int) reg.VecPhysical { return s.Physical(i) }
	hi := func(i int) reg.VecPhysical { return s.Physical(16 + i) }
	interleave(s, lo, hi)
	const even, odd = 0x88, 0xdd // which 128-bit lanes of two registers
	for j := range 4 {
		build.VSHUFF32X4(operand.Imm(even), lo(4+j), lo(j), hi(j))
		build.VSHUFF32X4(operand.Imm(odd), lo(4+j), lo(j), hi(4+j))
		build.VSHUFF32X4(operand.Imm(even), lo(12+j), lo(8+j), hi(8+j))
		build.VSHUFF32X4(operand.Imm(odd), lo(12+j), lo(8+j), hi(12+j))
	}
	out := make([]reg.VecPhysical, 16)
	for j := range 4 {
		for l, m := range []struct{ first, imm int }{{0, even}, {4, even}, {0, odd}, {4, odd}} {
			out[4*l+j] = lo(4*l + j)
			build.VSHUFF32X4(operand.Imm(uint64(m.imm)), hi(8+m.first+j), hi(m.first+j), lo(4*l+j))
		}
	}
	return out
}

// transpose8 gives the registers of the columns of rows Y0 to Y7, in order.
func transpose8(s emit.ISA) []reg.VecPhysical {
	lo := func(i int) reg.VecPhysical { return s.Physical(i) }
	hi := func(i int) reg.VecPhysical { return s.Physical(8 + i) }
	interleave(s, lo, hi)
	out := make([]reg.VecPhysical, 8)
	for j := range 4 {
		out[j], out[4+j] = hi(j), hi(4+j)
		build.VPERM2F128(operand.Imm(0x20), lo(4+j), lo(j), out[j])
		build.VPERM2F128(operand.Imm(0x31), lo(4+j), lo(j), out[4+j])
	}
	return out
}

// panels emits the packing of B for A*B: k rows of np panels, of which each row
// is a tile's width. dst holds panel after panel, ps bytes apart, each row by
// row. Four rows ahead are prefetched.
func panels(s emit.ISA) {
	for _, vectors := range emit.PanelVectors(s) {
		build.TEXT(fmt.Sprintf("panels%d%s", vectors, s.Name), build.NOSPLIT, "func(dst *float32, ps int, src *float32, lds int, k int, np int)")
		build.Pragma("noescape")
		dst, ps, src, lds, k, np := reg.RDI, reg.R10, reg.RSI, reg.R8, reg.RCX, reg.R9
		build.Load(build.Param("dst"), dst)
		build.Load(build.Param("ps"), ps)
		build.Load(build.Param("src"), src)
		build.Load(build.Param("lds"), lds)
		build.Load(build.Param("k"), k)
		build.Load(build.Param("np"), np)
		from, to, left, ahead := reg.RAX, reg.RBX, reg.RDX, reg.R11
		width := operand.U32(uint32(vectors * s.Bytes()))
		build.Label("row")
		build.MOVQ(src, from)
		build.MOVQ(dst, to)
		build.MOVQ(np, left)
		build.LEAQ(operand.Mem{Base: src, Index: lds, Scale: 4}, ahead)
		build.Label("panel")
		for v := range vectors {
			build.VMOVUPS(operand.Mem{Base: from, Disp: v * s.Bytes()}, s.Physical(v))
		}
		for d := 0; d < vectors*s.Bytes(); d += 64 {
			build.PREFETCHT0(operand.Mem{Base: ahead, Disp: d})
		}
		for v := range vectors {
			build.VMOVUPS(s.Physical(v), operand.Mem{Base: to, Disp: v * s.Bytes()})
		}
		build.ADDQ(width, from)
		build.ADDQ(width, ahead)
		build.ADDQ(ps, to)
		build.DECQ(left)
		build.JNE(operand.LabelRef("panel"))
		build.ADDQ(lds, src)
		build.ADDQ(width, dst)
		build.DECQ(k)
		build.JNE(operand.LabelRef("row"))
		build.VZEROUPPER()
		build.RET()
	}
}

// strips emits the packing of k-major A: k rows of np panels of width bytes (at
// most 32), which overlapping 32-byte stores write in ascending order. dst
// holds panel after panel, ps bytes apart. Eight rows ahead are prefetched.
func strips() {
	build.TEXT("strips", build.NOSPLIT, "func(dst *float32, ps int, src *float32, lds int, k int, np int, width int)")
	build.Pragma("noescape")
	dst, ps, src, lds, k, np, width := reg.RDI, reg.R10, reg.RSI, reg.R8, reg.RCX, reg.R9, reg.R12
	build.Load(build.Param("dst"), dst)
	build.Load(build.Param("ps"), ps)
	build.Load(build.Param("src"), src)
	build.Load(build.Param("lds"), lds)
	build.Load(build.Param("k"), k)
	build.Load(build.Param("np"), np)
	build.Load(build.Param("width"), width)
	from, to, left, ahead := reg.RAX, reg.RBX, reg.RDX, reg.R11
	build.Label("row")
	build.MOVQ(src, from)
	build.MOVQ(dst, to)
	build.MOVQ(np, left)
	build.LEAQ(operand.Mem{Base: src, Index: lds, Scale: 8}, ahead)
	build.Label("panel")
	build.VMOVUPS(operand.Mem{Base: from}, reg.Y0)
	build.PREFETCHT0(operand.Mem{Base: ahead})
	build.VMOVUPS(reg.Y0, operand.Mem{Base: to})
	build.ADDQ(width, from)
	build.ADDQ(width, ahead)
	build.ADDQ(ps, to)
	build.DECQ(left)
	build.JNE(operand.LabelRef("panel"))
	build.ADDQ(lds, src)
	build.ADDQ(width, dst)
	build.DECQ(k)
	build.JNE(operand.LabelRef("row"))
	build.VZEROUPPER()
	build.RET()
}
