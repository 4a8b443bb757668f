package main

import (
	"github.com/lockstep-ml/lockstep/kernels/cpu/internal/gen/emit"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Arguments are clamped to these: at the lower end the result rounds to +0, at
// the upper one it overflows, and the clamp keeps NaN.
const (
	expHigh = 89
	expLow  = -104
)

// limits loads what exp needs in registers, and returns the ends of its range.
func limits(f *emit.Func) (hi, lo reg.VecVirtual) {
	f.Keep(shifter, log2e, -ln2High, -ln2Low, expHigh, expLow)
	f.Keep(expPolynomial()...)
	return f.Const(expHigh), f.Const(expLow)
}

// Constants of kernels/ref.Exp32.
const (
	shifter = 0x1.8p23 // adding it rounds to an integer
	log2e   = 0x1.715476p0
	ln2High = 0x1.62e4p-1
	ln2Low  = 0x1.7f7d1cp-20
)

func expPolynomial() []float32 {
	return []float32{0x1.694p-10, 0x1.125edcp-7, 0x1.555b5ap-5, 0x1.55545p-3, 0x1.fffff6p-2, 1, 1}
}

// exp emits the canonical exponential of x; hi and lo hold expHigh and expLow.
// The last steps are exact but for one rounding, so that VSCALEFPS gives the
// same bits as the two multiplications by powers of two.
func exp(f *emit.Func, x, hi, lo reg.VecVirtual) reg.VecVirtual {
	clamped := f.Virtual()
	build.VMINPS(x, hi, clamped) // the second source, x, where either is NaN
	build.VMAXPS(clamped, lo, clamped)
	n := f.Copy(f.Float(shifter))
	build.VFMADD231PS(f.Float(log2e), clamped, n)
	n = sub(f, n, f.Float(shifter))
	r := clamped
	build.VFMADD231PS(f.Float(-ln2High), n, r)
	build.VFMADD231PS(f.Float(-ln2Low), n, r)
	c := expPolynomial()
	p := f.Copy(f.Float(c[0]))
	for _, v := range c[1:] {
		build.VFMADD213PS(f.Float(v), r, p)
	}
	if f.Wide() {
		build.VSCALEFPS(n, p, p)
		return p
	}
	k, h := f.Virtual(), f.Virtual()
	build.VCVTPS2DQ(n, k)
	build.VPSRAD(operand.Imm(1), k, h)
	build.VPSUBD(h, k, k)
	for _, e := range []reg.VecVirtual{h, k} {
		build.VPADDD(f.Bits(127), e, e)
		build.VPSLLD(operand.Imm(23), e, e)
		build.VMULPS(e, p, p)
	}
	return p
}

// sigmoid emits 1/(1+exp(-z)).
func sigmoid(f *emit.Func, z, hi, lo, one reg.VecVirtual) reg.VecVirtual {
	neg := f.Virtual()
	build.VXORPS(f.Bits(1<<31), z, neg)
	return div(f, one, add(f, one, exp(f, neg, hi, lo)))
}

// gates emits swiglu and its gradient.
func gates(s emit.ISA, c *emit.Constants) {
	f := emit.Begin(s, c, "swiglu", 3, 0) // h, z, u
	hi, lo := limits(f)
	one := f.Const(1)
	f.Loop("", 1, true, func(l emit.Lane) {
		z := l.Load(1)
		l.Store(0, mul(f, mul(f, z, sigmoid(f, z, hi, lo, one)), l.Load(2)))
	})
	f.End()

	f = emit.Begin(s, c, "swigluGrad", 5, 0) // dz, du, dh, z, u
	hi, lo = limits(f)
	one = f.Const(1)
	f.Loop("", 1, true, func(l emit.Lane) {
		z, dh := l.Load(3), l.Load(2)
		sg := sigmoid(f, z, hi, lo, one)
		du := mul(f, dh, mul(f, z, sg))
		t := sub(f, one, sg)
		build.VFMADD213PS(one, z, t)
		dz := mul(f, mul(f, dh, l.Load(4)), mul(f, sg, t))
		l.Store(1, du)
		l.Store(0, dz)
	})
	f.End()
}
