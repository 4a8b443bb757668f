package main

import (
	"github.com/lockstep-ml/lockstep/kernels/cpu/internal/gen/emit"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// norms emits lanesDot, RMSNorm and its gradient. Rows are written together
// with the sums of the next row, so that loads and stores go side by side.
func norms(s emit.ISA, c *emit.Constants) {
	f := emit.Begin(s, c, "lanesDot", 2, 0)
	f.Result(f.LaneSum("", false, func(l emit.Lane, acc reg.Register) { l.FMATo(l.Load(0), l.Load(1), acc) }))
	f.End()

	rmsNorm(s, c)

	normWeight(s, c)

	for _, g := range []normGrad{{}, {res: true}, {weight: true}, {weight: true, res: true}} {
		g.emit(s, c)
	}
}

// row copies the lowest float of a sum, to survive the next loop.
func row(sum reg.Register, to reg.VecVirtual) { build.VMOVAPS(sum, to) }

// spread is x in all lanes.
func spread(f *emit.Func, x reg.VecVirtual) reg.VecVirtual {
	r := f.Virtual()
	build.VBROADCASTSS(x, r)
	return r
}

// rmsNorm emits count rows of n elements: arrays y, x, w, rstd; scalars n, eps, 1.
func rmsNorm(s emit.ISA, c *emit.Constants) {
	const y, x, w, rstd = 0, 1, 2, 3
	f := emit.Begin(s, c, "rmsNorm", 4, 3)
	sum := build.XMM()
	row(f.LaneSum("first", false, func(l emit.Lane, acc reg.Register) {
		v := l.Load(x)
		l.FMATo(v, v, acc)
	}), sum)
	build.Label("row")
	build.VDIVSS(f.Scalar(0).AsX(), sum, sum)
	build.VADDSS(f.Scalar(1).AsX(), sum, sum)
	build.VSQRTSS(sum, sum, sum)
	build.VDIVSS(sum, f.Scalar(2).AsX(), sum)
	build.VMOVSS(sum, operand.Mem{Base: f.Ptr(rstd)})
	build.ADDQ(operand.Imm(4), f.Ptr(rstd))
	r := spread(f, sum)
	write := func(l emit.Lane) { l.Store(y, mul(f, mul(f, l.Load(x), r), l.Load(w))) }
	f.ResetN()
	f.LastRow("last")
	next := f.NextRow(x)
	row(f.LaneSum("next", true, func(l emit.Lane, acc reg.Register) {
		l.Fetch(next)
		v := l.Load(next)
		write(l)
		l.FMATo(v, v, acc)
	}), sum)
	f.Advance(y, x)
	build.JMP(operand.LabelRef("row"))
	build.Label("last")
	f.Loop("final", 2, true, write)
	f.End()
}

// normWeight emits count rows of the gradient of the weight: arrays dw, dy, x,
// rstd.
func normWeight(s emit.ISA, c *emit.Constants) {
	const dw, dy, x, rstd = 0, 1, 2, 3
	f := emit.Begin(s, c, "normWeight", 4, 0)
	r := f.Virtual()
	build.Label("row")
	build.VBROADCASTSS(operand.Mem{Base: f.Ptr(rstd)}, r)
	build.ADDQ(operand.Imm(4), f.Ptr(rstd))
	f.ResetN()
	f.Loop("", 4, false, func(l emit.Lane) {
		v := l.Load(dw)
		build.VFMADD231PS(l.Load(dy), mul(f, l.Load(x), r), v)
		l.Store(dw, v)
	})
	f.LastRow("last")
	f.Advance(dy, x)
	build.JMP(operand.LabelRef("row"))
	build.Label("last")
	f.End()
}

// normGrad is a form of the gradient: with a residual, with the gradient of the
// weight.
type normGrad struct{ res, weight bool }

// emit takes count rows of n elements: arrays dx, x, dy, w, rstd, res, dw; the
// scalar n.
func (g normGrad) emit(s emit.ISA, c *emit.Constants) {
	const dx, x, dy, w, rstd, res, dw = 0, 1, 2, 3, 4, 5, 6
	name := "normGrad"
	if g.res {
		name += "Add"
	}
	if g.weight {
		name += "Weight"
	}
	f := emit.Begin(s, c, name, 7, 1)
	r, mean, sum := f.Virtual(), f.Virtual(), build.XMM()
	// sums adds a row's share of the sum and of dw.
	sums := func(l emit.Lane, x, dy int, acc reg.Register) {
		d, xh := l.Load(dy), mul(f, l.Load(x), r)
		if g.weight {
			v := l.Load(dw)
			build.VFMADD231PS(d, xh, v)
			l.Keep(dw, v)
		}
		l.FMATo(mul(f, d, l.Load(w)), xh, acc)
	}
	build.VBROADCASTSS(operand.Mem{Base: f.Ptr(rstd)}, r)
	row(f.LaneSum("first", false, func(l emit.Lane, acc reg.Register) { sums(l, x, dy, acc) }), sum)
	build.Label("row")
	build.VDIVSS(f.Scalar(0).AsX(), sum, sum)
	build.VBROADCASTSS(sum, mean)
	old := f.Copy(r)
	write := func(l emit.Lane) {
		d := mul(f, l.Load(dy), l.Load(w))
		build.VFNMADD231PS(mean, mul(f, l.Load(x), old), d)
		d = mul(f, d, old)
		if g.res {
			d = add(f, l.Load(res), d)
		}
		l.Store(dx, d)
	}
	f.ResetN()
	f.LastRow("last")
	build.ADDQ(operand.Imm(4), f.Ptr(rstd))
	build.VBROADCASTSS(operand.Mem{Base: f.Ptr(rstd)}, r)
	nextX, nextDy := f.NextRow(x), f.NextRow(dy)
	row(f.LaneSum("next", true, func(l emit.Lane, acc reg.Register) {
		l.Fetch(nextX)
		l.Fetch(nextDy)
		sums(l, nextX, nextDy, acc)
		write(l)
	}), sum)
	f.Advance(dx, x, dy)
	if g.res {
		f.Advance(res)
	}
	build.JMP(operand.LabelRef("row"))
	build.Label("last")
	f.Loop("final", 2, true, write)
	f.End()
}
