package emit

import (
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
	streams bool // has streaming stores
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

// End returns from the function, after its streaming stores if it made any: a
// fence per row would wait for the memory each time.
func (f *Func) End() {
	if f.streams {
		build.CMPQ(operand.Mem{Base: f.args, Disp: offStream}, operand.Imm(0))
		build.JE(operand.LabelRef("stored"))
		build.SFENCE()
		build.Label("stored")
	}
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
	build.MOVQ(f.count(), r)
	return r
}

func (f *Func) count() operand.Mem { return operand.Mem{Base: f.args, Disp: offCount} }

// LastRow counts a row down and jumps to label if it was the last.
func (f *Func) LastRow(label string) {
	build.DECQ(f.count())
	build.JE(operand.LabelRef(label))
}

// RowBytes is the size of a row of n elements.
func (f *Func) RowBytes() reg.GPVirtual {
	r := build.GP64()
	build.MOVQ(operand.Mem{Base: f.args, Disp: offN}, r)
	build.SHLQ(operand.Imm(2), r)
	return r
}

// NextRow is a new array: the row after the one that array i points to.
func (f *Func) NextRow(i int) int {
	r := f.RowBytes()
	build.ADDQ(f.ptr[i], r)
	f.ptr = append(f.ptr, r)
	return len(f.ptr) - 1
}

// Advance moves arrays to their next row.
func (f *Func) Advance(arrays ...int) {
	size := f.RowBytes()
	for _, i := range arrays {
		build.ADDQ(size, f.ptr[i])
	}
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
