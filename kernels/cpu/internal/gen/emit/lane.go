package emit

import (
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

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

// Fetch prefetches array i some lines ahead of these elements. Memory that is
// not there does not matter.
func (l Lane) Fetch(i int) {
	if m := l.at(i); !l.part && l.disp%64 == 0 {
		m.Disp += fetchAhead
		build.PREFETCHT0(m)
	}
}

// fetchAhead is the distance of Fetch in bytes: measured best of 0, 2048, 4096
// and 8192.
const fetchAhead = 4096

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
	return c.vector("maskRows", 2*c.isa.Lanes, 4, func(i int) operand.Constant {
		if i < c.isa.Lanes {
			return operand.U32(0xffffffff)
		}
		return operand.U32(0)
	})
}
