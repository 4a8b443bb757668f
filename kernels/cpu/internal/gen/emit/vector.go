package emit

import (
	"fmt"
	"math"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Offsets of the fields of vectorArgs in package cpu.
const (
	offN      = 0
	offP      = 8
	offS      = offP + 8*8
	offCount  = offS + 4*12
	offStream = offCount + 8
	offOut    = offStream + 8
)

// Func is a function over vectors under construction.
type Func struct {
	ISA
	*Constants
	// N is the number of elements still to do, Off the byte offset of the next.
	N, Off  reg.GPVirtual
	args    reg.GPVirtual
	ptr     []reg.GPVirtual
	scalars map[int]reg.VecVirtual
	kept    map[uint32]reg.VecVirtual
}

// Begin starts a function with a number of arrays and of scalars, which a wide
// set keeps in registers.
func Begin(s ISA, c *Constants, name string, arrays, scalars int) *Func {
	build.TEXT(name+s.Name, build.NOSPLIT, "func(p *byte)")
	build.Pragma("noescape")
	f := &Func{ISA: s, Constants: c, N: build.GP64(), Off: build.GP64(), args: build.GP64(), scalars: map[int]reg.VecVirtual{}, kept: map[uint32]reg.VecVirtual{}}
	build.Load(build.Param("p"), f.args)
	f.ResetN()
	for i := range arrays {
		f.ptr = append(f.ptr, build.GP64())
		build.MOVQ(operand.Mem{Base: f.args, Disp: offP + 8*i}, f.ptr[i])
	}
	for i := range scalars {
		if s.Wide() {
			f.scalars[i] = s.Virtual()
			build.VBROADCASTSS(f.scalar(i), f.scalars[i])
		}
	}
	return f
}

// End returns from the function.
func (f *Func) End() {
	build.VZEROUPPER()
	build.RET()
}

// ResetN starts from the first element.
func (f *Func) ResetN() {
	build.MOVQ(operand.Mem{Base: f.args, Disp: offN}, f.N)
	build.XORQ(f.Off, f.Off)
}

// Ptr is the register that points to array i.
func (f *Func) Ptr(i int) reg.GPVirtual { return f.ptr[i] }

// Count loads the field count.
func (f *Func) Count() reg.GPVirtual {
	r := build.GP64()
	build.MOVQ(operand.Mem{Base: f.args, Disp: offCount}, r)
	return r
}

func (f *Func) scalar(i int) operand.Mem { return operand.Mem{Base: f.args, Disp: offS + 4*i} }

// Scalar is a register that holds scalar i in all lanes.
func (f *Func) Scalar(i int) reg.VecVirtual {
	if r, ok := f.scalars[i]; ok {
		return r
	}
	r := f.Virtual()
	build.VBROADCASTSS(f.scalar(i), r)
	return r
}

// Keep loads constants that a wide set, with its 32 registers, then keeps in
// registers; else they stay in memory.
func (f *Func) Keep(vs ...float32) {
	for _, v := range vs {
		if u := math.Float32bits(v); f.Wide() && f.kept[u] == nil {
			f.kept[u] = f.Copy(f.Bits(u))
		}
	}
}

// Float is an operand that holds v in all lanes.
func (f *Func) Float(v float32) operand.Op {
	if r := f.kept[math.Float32bits(v)]; r != nil {
		return r
	}
	return f.Constants.Float(v)
}

// Const is a register that holds v in all lanes, not to be written.
func (f *Func) Const(v float32) reg.VecVirtual {
	if r := f.kept[math.Float32bits(v)]; r != nil {
		return r
	}
	return f.Copy(f.Float(v))
}

// Copy is a new register that holds m.
func (f *Func) Copy(m operand.Op) reg.VecVirtual {
	r := f.Virtual()
	build.VMOVUPS(m, r)
	return r
}

// Result stores the lowest float of x as output.
func (f *Func) Result(x reg.Register) { build.VMOVSS(x, operand.Mem{Base: f.args, Disp: offOut}) }

// Lane is one vector of elements: the next ones, or those Disp bytes on.
type Lane struct {
	*Func
	disp   int
	stream bool
	part   bool
	k      reg.OpmaskVirtual
	m      reg.VecVirtual
}

func (l Lane) at(i int) operand.Mem {
	return operand.Mem{Base: l.ptr[i], Index: l.Off, Scale: 1, Disp: l.disp}
}

// Load is a new register with the elements of array i; lanes without elements
// are +0.
func (l Lane) Load(i int) reg.VecVirtual {
	r := l.Virtual()
	switch {
	case !l.part:
		build.VMOVUPS(l.at(i), r)
	case l.Wide():
		build.VMOVUPS_Z(l.at(i), l.k, r)
	default:
		build.VMASKMOVPS(l.at(i), l.m, r)
	}
	return r
}

// Store writes the elements of array i.
func (l Lane) Store(i int, r reg.Register) {
	switch {
	case l.stream:
		build.VMOVNTPS(r, l.at(i))
	case !l.part:
		build.VMOVUPS(r, l.at(i))
	case l.Wide():
		build.VMOVUPS(r, l.k, l.at(i))
	default:
		build.VMASKMOVPS(r, l.m, l.at(i))
	}
}

// Keep is Store for what will be read again soon: it never streams.
func (l Lane) Keep(i int, r reg.Register) {
	l.stream = false
	l.Store(i, r)
}

// AddTo adds x to acc in the lanes that have elements. acc is never -0.
func (l Lane) AddTo(x, acc reg.Register) {
	switch {
	case !l.part:
		build.VADDPS(x, acc, acc)
	case l.Wide():
		build.VADDPS(x, acc, l.k, acc)
	default:
		t := l.Virtual()
		build.VANDPS(l.m, x, t)
		build.VADDPS(t, acc, acc)
	}
}

// FMATo adds x*y to acc in the lanes that have elements.
func (l Lane) FMATo(x, y, acc reg.Register) {
	switch {
	case !l.part:
		build.VFMADD231PS(x, y, acc)
	case l.Wide():
		build.VFMADD231PS(x, y, l.k, acc)
	default:
		t := l.Copy(acc)
		build.VFMADD231PS(x, y, t)
		build.VBLENDVPS(l.m, t, acc, acc)
	}
}

// MaxTo sets acc to x where x > acc, in the lanes that have elements.
func (l Lane) MaxTo(x, acc reg.Register) {
	switch {
	case !l.part:
		build.VMAXPS(acc, x, acc) // the first operand where either is NaN or both are zero
	case l.Wide():
		build.VMAXPS(acc, x, l.k, acc)
	default:
		t := l.Virtual()
		build.VMAXPS(acc, x, t)
		build.VBLENDVPS(l.m, t, acc, acc)
	}
}

// tail is the lane of the last N < Lanes elements.
func (f *Func) tail() Lane {
	l := Lane{Func: f, part: true}
	if f.Wide() {
		l.k = build.K()
		r := build.GP32()
		build.MOVL(operand.U32(0xffff), r)
		build.BZHIL(f.N.As32(), r, r)
		build.KMOVW(r, l.k)
		return l
	}
	l.m = build.YMM()
	r := build.GP64()
	build.LEAQ(f.maskRows(), r)
	build.SHLQ(operand.Imm(2), f.N)
	build.SUBQ(f.N, r)
	build.VMOVUPS(operand.Mem{Base: r, Disp: f.Bytes()}, l.m)
	return l
}

// maskRows is a table of Lanes lanes set, then Lanes lanes clear.
func (c *Constants) maskRows() operand.Mem {
	const key = 1 // no constant in use
	if m, ok := c.known[key]; ok {
		return m
	}
	m := build.GLOBL("maskRows"+c.isa.Name, build.RODATA|build.NOPTR)
	for i := range c.isa.Lanes {
		build.DATA(4*i, operand.U32(0xffffffff))
	}
	for i := range c.isa.Lanes {
		build.DATA(4*(c.isa.Lanes+i), operand.U32(0))
	}
	c.known[key] = m
	return m
}

// Loop runs body over all N elements, unroll vectors at a time. Streaming loops
// store past the caches where the caller asks for it.
func (f *Func) Loop(tag string, unroll int, streaming bool, body func(l Lane)) {
	many, one, done := tag+"many", tag+"one", tag+"done"
	if streaming {
		build.CMPQ(operand.Mem{Base: f.args, Disp: offStream}, operand.Imm(0))
		build.JE(operand.LabelRef(many))
		f.blocks(tag+"stream", unroll, true, body)
		build.SFENCE()
		build.JMP(operand.LabelRef(one))
	}
	if unroll > 1 || streaming {
		f.blocks(many, unroll, false, body)
	}
	f.blocks(one, 1, false, body)
	build.TESTQ(f.N, f.N)
	build.JE(operand.LabelRef(done))
	body(f.tail())
	build.Label(done)
}

// blocks runs body over blocks of n vectors.
func (f *Func) blocks(label string, n int, stream bool, body func(l Lane)) {
	end := label + "end"
	build.Label(label)
	build.CMPQ(f.N, operand.U32(uint32(n*f.Lanes)))
	build.JLT(operand.LabelRef(end))
	for u := range n {
		body(Lane{Func: f, disp: u * f.Bytes(), stream: stream})
	}
	build.ADDQ(operand.U32(uint32(n*f.Bytes())), f.Off)
	build.SUBQ(operand.U32(uint32(n*f.Lanes)), f.N)
	build.JMP(operand.LabelRef(label))
	build.Label(end)
}

// laneCount is the number of accumulators of lanes().
const laneCount = 32

// LaneSum runs body over all elements with the accumulator of each element's
// lane, element i in lane i mod 32, and returns the folded sum in lane 0.
func (f *Func) LaneSum(streaming bool, body func(l Lane, acc reg.Register)) reg.Register {
	acc := make([]reg.VecVirtual, laneCount/f.Lanes)
	for i := range acc {
		acc[i] = f.Virtual()
		f.Zero(acc[i])
	}
	all := func(label, end string, stream bool) {
		build.Label(label)
		build.CMPQ(f.N, operand.Imm(laneCount))
		build.JLT(operand.LabelRef(end))
		for i := range acc {
			body(Lane{Func: f, disp: i * f.Bytes(), stream: stream}, acc[i])
		}
		build.ADDQ(operand.U32(laneCount*4), f.Off)
		build.SUBQ(operand.Imm(laneCount), f.N)
		build.JMP(operand.LabelRef(label))
	}
	if streaming {
		build.CMPQ(operand.Mem{Base: f.args, Disp: offStream}, operand.Imm(0))
		build.JE(operand.LabelRef("lanes"))
		all("stream", "fence", true)
		build.Label("fence")
		build.SFENCE()
	}
	all("lanes", "few", false)
	build.Label("few")
	for i := range acc {
		rest := fmt.Sprintf("rest%d", i)
		build.CMPQ(f.N, operand.Imm(uint64(f.Lanes)))
		build.JLT(operand.LabelRef(rest))
		body(Lane{Func: f}, acc[i])
		build.ADDQ(operand.U32(uint32(f.Bytes())), f.Off)
		build.SUBQ(operand.Imm(uint64(f.Lanes)), f.N)
	}
	build.JMP(operand.LabelRef("fold"))
	for i := range acc {
		build.Label(fmt.Sprintf("rest%d", i))
		build.TESTQ(f.N, f.N)
		build.JE(operand.LabelRef("fold"))
		body(f.tail(), acc[i])
		build.JMP(operand.LabelRef("fold"))
	}
	build.Label("fold")
	for d := len(acc) / 2; d >= 1; d /= 2 {
		for i := range d {
			build.VADDPS(acc[i+d], acc[i], acc[i])
		}
	}
	return f.Fold(acc[0], func(x, y, z operand.Op) { build.VADDPS(x, y, z) })
}

// Fold combines the upper half of a vector with the lower until one is left.
func (f *Func) Fold(x reg.VecVirtual, op func(x, y, z operand.Op)) reg.Register {
	y := x.AsY()
	if f.Wide() {
		t := build.YMM()
		build.VEXTRACTF64X4(operand.Imm(1), x, t)
		op(t, y, y)
	}
	t := build.XMM()
	build.VEXTRACTF128(operand.Imm(1), y, t)
	z := x.AsX()
	op(t, z, z)
	build.VMOVHLPS(z, z, t)
	op(t, z, z)
	build.VMOVSHDUP(z, t)
	op(t, z, z)
	return z
}

// LaneMax runs body with accumulators that start at -Inf and returns their
// maximum in lane 0.
func (f *Func) LaneMax(body func(l Lane, acc reg.Register)) reg.Register {
	acc := f.Copy(f.Float(negInf()))
	next := f.Copy(acc)
	f.Loop("max", 2, false, func(l Lane) {
		if l.disp > 0 {
			body(l, next)
		} else {
			body(l, acc)
		}
	})
	build.VMAXPS(next, acc, acc)
	return f.Fold(acc, func(x, y, z operand.Op) { build.VMAXPS(x, y, z) })
}

func negInf() float32 { return float32(math.Inf(-1)) }
