package main

import (
	"github.com/lockstep-ml/lockstep/kernels/cpu/internal/gen/emit"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// rotation emits rope: count heads of n pairs at x; tables cos and sin; the
// scalar is -0 for the inverse, else +0.
func rotation(s emit.ISA, c *emit.Constants) {
	f := emit.Begin(s, c, "rope", 4, 1) // first halves, second halves, cos, sin
	heads, size := f.Count(), build.GP64()
	build.MOVQ(f.N, size)
	build.SHLQ(operand.Imm(3), size)
	sign := f.Scalar(0)
	build.Label("head")
	f.ResetN()
	f.Loop("", 1, false, func(l emit.Lane) {
		a, b, cos, sin := l.Load(0), l.Load(1), l.Load(2), f.Virtual()
		build.VXORPS(sign, l.Load(3), sin)
		lo, hi := mul(f, a, cos), mul(f, b, cos)
		build.VFNMADD231PS(b, sin, lo)
		build.VFMADD231PS(a, sin, hi)
		l.Store(0, lo)
		l.Store(1, hi)
	})
	build.ADDQ(size, f.Ptr(0))
	build.ADDQ(size, f.Ptr(1))
	build.DECQ(heads)
	build.JNE(operand.LabelRef("head"))
	f.End()
}

// probabilities emits the pieces of softmax, its gradient and the loss.
func probabilities(s emit.ISA, c *emit.Constants) {
	f := emit.Begin(s, c, "scaleMax", 1, 1)
	f.Result(f.LaneMax(func(l emit.Lane, acc reg.Register) {
		x := mul(f, l.Load(0), f.Scalar(0))
		l.Store(0, x)
		l.MaxTo(x, acc)
	}))
	f.End()

	f = emit.Begin(s, c, "rowMax", 1, 0)
	f.Result(f.LaneMax(func(l emit.Lane, acc reg.Register) { l.MaxTo(l.Load(0), acc) }))
	f.End()

	f = emit.Begin(s, c, "expSum", 2, 1) // e, x; max
	hi, lo := limits(f)
	f.Result(f.LaneSum("", false, func(l emit.Lane, acc reg.Register) {
		e := exp(f, sub(f, l.Load(1), f.Scalar(0)), hi, lo)
		l.Store(0, e)
		l.AddTo(e, acc)
	}))
	f.End()

	f = emit.Begin(s, c, "divide", 1, 1)
	f.Loop("", 2, false, func(l emit.Lane) { l.Store(0, div(f, l.Load(0), f.Scalar(0))) })
	f.End()

	f = emit.Begin(s, c, "divideScale", 1, 2)
	f.Loop("", 2, false, func(l emit.Lane) { l.Store(0, mul(f, div(f, l.Load(0), f.Scalar(0)), f.Scalar(1))) })
	f.End()

	f = emit.Begin(s, c, "softmaxGrad", 3, 2) // ds, p, dp; mean, scale
	f.Loop("", 2, false, func(l emit.Lane) {
		l.Store(0, mul(f, mul(f, l.Load(1), sub(f, l.Load(2), f.Scalar(0))), f.Scalar(1)))
	})
	f.End()
}
