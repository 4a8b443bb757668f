package emit

import (
	"fmt"
	"math"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Loop runs body over all N elements, unroll vectors at a time. Streaming loops
// store past the caches where the caller asks for it.
func (f *Func) Loop(tag string, unroll int, streaming bool, body func(l Lane)) {
	many, one, done := tag+"many", tag+"one", tag+"done"
	if streaming {
		build.CMPQ(operand.Mem{Base: f.args, Disp: offStream}, operand.Imm(0))
		build.JE(operand.LabelRef(many))
		f.blocks(tag+"stream", unroll, true, body)
		f.streams = true
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
func (f *Func) LaneSum(tag string, streaming bool, body func(l Lane, acc reg.Register)) reg.Register {
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
		build.JE(operand.LabelRef(tag + "lanes"))
		all(tag+"stream", tag+"lanes", true)
		f.streams = true
	}
	all(tag+"lanes", tag+"few", false)
	build.Label(tag + "few")
	for i := range acc {
		rest := fmt.Sprintf("%srest%d", tag, i)
		build.CMPQ(f.N, operand.Imm(uint64(f.Lanes)))
		build.JLT(operand.LabelRef(rest))
		body(Lane{Func: f}, acc[i])
		build.ADDQ(operand.U32(uint32(f.Bytes())), f.Off)
		build.SUBQ(operand.Imm(uint64(f.Lanes)), f.N)
	}
	build.JMP(operand.LabelRef(tag + "fold"))
	for i := range acc {
		build.Label(fmt.Sprintf("%srest%d", tag, i))
		build.TESTQ(f.N, f.N)
		build.JE(operand.LabelRef(tag + "fold"))
		body(f.tail(), acc[i])
		build.JMP(operand.LabelRef(tag + "fold"))
	}
	build.Label(tag + "fold")
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
