// Package emit holds what the generators of assembly share: the two
// instruction sets, masks, constants and alignment.
package emit

import (
	"fmt"
	"math"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// ISA is an instruction set: AVX-512 (F, BW, DQ, VL) with vectors of 16
// floats, or AVX2 with FMA and vectors of 8.
type ISA struct {
	// Name ends the names of its functions.
	Name string
	// Lanes is the number of floats of a vector.
	Lanes int
}

// AVX512 and AVX2 are the instruction sets.
func AVX512() ISA { return ISA{"AVX512", 16} }

// AVX2 is the older instruction set; all of its vectors are YMM registers.
func AVX2() ISA { return ISA{"AVX2", 8} }

// Wide reports whether the set has ZMM registers and mask registers.
func (s ISA) Wide() bool { return s.Lanes == 16 }

// Bytes is the size of a vector.
func (s ISA) Bytes() int { return 4 * s.Lanes }

// Physical is vector register i.
func (s ISA) Physical(i int) reg.VecPhysical {
	if s.Wide() {
		return []reg.VecPhysical{reg.Z0, reg.Z1, reg.Z2, reg.Z3, reg.Z4, reg.Z5, reg.Z6, reg.Z7, reg.Z8, reg.Z9, reg.Z10,
			reg.Z11, reg.Z12, reg.Z13, reg.Z14, reg.Z15, reg.Z16, reg.Z17, reg.Z18, reg.Z19, reg.Z20, reg.Z21, reg.Z22,
			reg.Z23, reg.Z24, reg.Z25, reg.Z26, reg.Z27, reg.Z28, reg.Z29, reg.Z30, reg.Z31}[i]
	}
	return []reg.VecPhysical{reg.Y0, reg.Y1, reg.Y2, reg.Y3, reg.Y4, reg.Y5, reg.Y6, reg.Y7, reg.Y8, reg.Y9, reg.Y10,
		reg.Y11, reg.Y12, reg.Y13, reg.Y14, reg.Y15}[i]
}

// Virtual is a vector register of the allocator's choice.
func (s ISA) Virtual() reg.VecVirtual {
	if s.Wide() {
		return build.ZMM()
	}
	return build.YMM()
}

// Zero sets r to +0 in all lanes.
func (s ISA) Zero(r reg.Register) {
	if s.Wide() {
		build.VPXORD(r, r, r)
		return
	}
	build.VXORPS(r, r, r)
}

// Align starts a loop at a multiple of n bytes. The assembler knows the
// directive, the generator's library does not.
func Align(n uint64) {
	build.Instruction(&ir.Instruction{Opcode: "PCALIGN", Operands: []operand.Op{operand.Imm(n)}})
}

// Constants are read-only vectors, one per content.
type Constants struct {
	isa   ISA
	known map[string]operand.Mem
}

// NewConstants starts an empty table for functions of one instruction set.
func NewConstants(s ISA) *Constants { return &Constants{isa: s, known: map[string]operand.Mem{}} }

// Float is a vector of v in all lanes.
func (c *Constants) Float(v float32) operand.Mem { return c.Bits(math.Float32bits(v)) }

// Bits is a vector of u in all lanes.
func (c *Constants) Bits(u uint32) operand.Mem {
	return c.vector(fmt.Sprintf("%08x", u), c.isa.Lanes, 4, func(int) operand.Constant { return operand.U32(u) })
}

// Word is a vector of u in all 64-bit lanes.
func (c *Constants) Word(u uint64) operand.Mem {
	return c.Words(fmt.Sprintf("%016x", u), func(int) uint64 { return u })
}

// Words is the vector called name of the 64-bit lanes that f gives.
func (c *Constants) Words(name string, f func(lane int) uint64) operand.Mem {
	return c.vector(name, c.isa.Lanes/2, 8, func(lane int) operand.Constant { return operand.U64(f(lane)) })
}

// vector is the data called name of n parts of some bytes each.
func (c *Constants) vector(name string, n, bytes int, f func(i int) operand.Constant) operand.Mem {
	if m, ok := c.known[name]; ok {
		return m
	}
	m := build.GLOBL(fmt.Sprintf("const%s_%s", c.isa.Name, name), build.RODATA|build.NOPTR)
	for i := range n {
		build.DATA(bytes*i, f(i))
	}
	c.known[name] = m
	return m
}
