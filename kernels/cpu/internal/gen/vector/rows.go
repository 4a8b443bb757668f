package main

import (
	"github.com/lockstep-ml/lockstep/kernels/cpu/internal/gen/emit"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// norms emits the pieces of RMSNorm and its gradient, a row at a time.
func norms(s emit.ISA, c *emit.Constants) {
	f := emit.Begin(s, c, "lanesDot", 2, 0)
	f.Result(f.LaneSum(false, func(l emit.Lane, acc reg.Register) { l.FMATo(l.Load(0), l.Load(1), acc) }))
	f.End()

	f = emit.Begin(s, c, "norm", 3, 1) // y, x, w; rstd
	f.Loop("", 2, true, func(l emit.Lane) { l.Store(0, mul(f, mul(f, l.Load(1), f.Scalar(0)), l.Load(2))) })
	f.End()

	// With the sum of the next row, so that loads and stores go side by side.
	f = emit.Begin(s, c, "normNext", 4, 1) // y, x, w, next x; rstd
	f.Result(f.LaneSum(true, func(l emit.Lane, acc reg.Register) {
		next := l.Load(3)
		l.Store(0, mul(f, mul(f, l.Load(1), f.Scalar(0)), l.Load(2)))
		l.FMATo(next, next, acc)
	}))
	f.End()

	f = emit.Begin(s, c, "normSum", 3, 1) // x, dy, w; rstd
	f.Result(f.LaneSum(false, func(l emit.Lane, acc reg.Register) {
		l.FMATo(mul(f, l.Load(1), l.Load(2)), mul(f, l.Load(0), f.Scalar(0)), acc)
	}))
	f.End()

	f = emit.Begin(s, c, "normSumWeight", 4, 1) // x, dy, w, dw; rstd
	f.Result(f.LaneSum(false, func(l emit.Lane, acc reg.Register) {
		dy, xh, dw := l.Load(1), mul(f, l.Load(0), f.Scalar(0)), l.Load(3)
		build.VFMADD231PS(dy, xh, dw)
		l.Store(3, dw)
		l.FMATo(mul(f, dy, l.Load(2)), xh, acc)
	}))
	f.End()

	f = emit.Begin(s, c, "normWeight", 3, 1) // dw, dy, x; rstd
	f.Loop("", 2, false, func(l emit.Lane) {
		dw := l.Load(0)
		build.VFMADD231PS(l.Load(1), mul(f, l.Load(2), f.Scalar(0)), dw)
		l.Store(0, dw)
	})
	f.End()

	for _, g := range []normGrad{{}, {res: true}, {next: true}, {next: true, res: true}, {next: true, weight: true}, {next: true, weight: true, res: true}} {
		g.emit(s, c)
	}
}

// normGrad is a form of the gradient of a row: with the residual, with the sum
// of the next row, and with the gradient of the weight by the next row.
type normGrad struct{ res, next, weight bool }

// emit takes arrays dx, x, dy, w, res, next x, next dy, dw and scalars rstd, c,
// next rstd.
func (g normGrad) emit(s emit.ISA, c *emit.Constants) {
	name, arrays, scalars := "normGrad", 5, 2
	if g.res {
		name += "Add"
	}
	if g.next {
		name, arrays, scalars = name+"Next", 7, 3
	}
	if g.weight {
		name, arrays = name+"Weight", 8
	}
	f := emit.Begin(s, c, name, arrays, scalars)
	row := func(l emit.Lane) {
		r := f.Scalar(0)
		d := mul(f, l.Load(2), l.Load(3))
		build.VFNMADD231PS(f.Scalar(1), mul(f, l.Load(1), r), d)
		d = mul(f, d, r)
		if g.res {
			d = add(f, l.Load(4), d)
		}
		l.Store(0, d)
	}
	if !g.next {
		f.Loop("", 2, true, row)
		f.End()
		return
	}
	f.Result(f.LaneSum(true, func(l emit.Lane, acc reg.Register) {
		dy, xh := l.Load(6), mul(f, l.Load(5), f.Scalar(2))
		row(l)
		if g.weight {
			dw := l.Load(7)
			build.VFMADD231PS(dy, xh, dw)
			l.Keep(7, dw)
		}
		l.FMATo(mul(f, dy, l.Load(3)), xh, acc)
	}))
	f.End()
}

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
	f.Result(f.LaneSum(false, func(l emit.Lane, acc reg.Register) {
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
