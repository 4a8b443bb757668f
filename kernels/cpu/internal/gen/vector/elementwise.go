package main

import (
	"github.com/lockstep-ml/lockstep/kernels/cpu/internal/gen/emit"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Operand order of the assembler: the second source first, so sub(a, b) is
// VSUBPS b, a, dst.

func binary(f *emit.Func, op func(a, b, c operand.Op), second, first operand.Op) reg.VecVirtual {
	r := f.Virtual()
	op(second, first, r)
	return r
}

func add(f *emit.Func, a, b operand.Op) reg.VecVirtual {
	return binary(f, func(x, y, z operand.Op) { build.VADDPS(x, y, z) }, b, a)
}

func sub(f *emit.Func, a, b operand.Op) reg.VecVirtual {
	return binary(f, func(x, y, z operand.Op) { build.VSUBPS(x, y, z) }, b, a)
}

func mul(f *emit.Func, a, b operand.Op) reg.VecVirtual {
	return binary(f, func(x, y, z operand.Op) { build.VMULPS(x, y, z) }, b, a)
}

func div(f *emit.Func, a, b operand.Op) reg.VecVirtual {
	return binary(f, func(x, y, z operand.Op) { build.VDIVPS(x, y, z) }, b, a)
}

// elementwise emits fill, scale, addConst, add, tree4, residual and larger.
func elementwise(s emit.ISA, c *emit.Constants) {
	f := emit.Begin(s, c, "fill", 1, 1)
	v := f.Scalar(0)
	f.Loop("", 4, true, func(l emit.Lane) { l.Store(0, v) })
	f.End()

	f = emit.Begin(s, c, "scale", 2, 1)
	v = f.Scalar(0)
	f.Loop("", 4, true, func(l emit.Lane) { l.Store(0, mul(f, l.Load(1), v)) })
	f.End()

	f = emit.Begin(s, c, "addConst", 2, 1)
	v = f.Scalar(0)
	f.Loop("", 4, false, func(l emit.Lane) { l.Store(0, add(f, l.Load(1), v)) })
	f.End()

	f = emit.Begin(s, c, "add", 3, 0)
	f.Loop("", 4, true, func(l emit.Lane) { l.Store(0, add(f, l.Load(1), l.Load(2))) })
	f.End()

	f = emit.Begin(s, c, "tree4", 5, 0)
	f.Loop("", 2, true, func(l emit.Lane) {
		l.Store(0, add(f, add(f, l.Load(1), l.Load(2)), add(f, l.Load(3), l.Load(4))))
	})
	f.End()

	f = emit.Begin(s, c, "residual", 4, 0)
	f.Loop("", 2, false, func(l emit.Lane) { l.Store(0, add(f, l.Load(1), add(f, l.Load(2), l.Load(3)))) })
	f.End()

	f = emit.Begin(s, c, "larger", 2, 0)
	f.Loop("", 2, false, func(l emit.Lane) {
		m := l.Load(0)
		build.VMAXPS(m, l.Load(1), m)
		l.Store(0, m)
	})
	f.End()
}

// updates emits adamw and sgd. Scalars of adamw: coef, beta1, 1-beta1, beta2,
// 1-beta2, c1, c2, eps, decay, -lr; of sgd: coef, mu, decay, -lr.
func updates(s emit.ISA, c *emit.Constants) {
	f := emit.Begin(s, c, "adamw", 4, 10)
	f.Loop("", 1, false, func(l emit.Lane) {
		g := mul(f, l.Load(3), f.Scalar(0))
		m := mul(f, l.Load(1), f.Scalar(1))
		build.VFMADD231PS(f.Scalar(2), g, m)
		l.Store(1, m)
		v := mul(f, l.Load(2), f.Scalar(3))
		build.VFMADD231PS(f.Scalar(4), mul(f, g, g), v)
		l.Store(2, v)
		root := f.Virtual()
		build.VSQRTPS(div(f, v, f.Scalar(6)), root)
		u := div(f, div(f, m, f.Scalar(5)), add(f, root, f.Scalar(7)))
		w := l.Load(0)
		build.VFMADD231PS(f.Scalar(8), w, u)
		build.VFMADD231PS(f.Scalar(9), u, w)
		l.Store(0, w)
	})
	f.End()

	f = emit.Begin(s, c, "sgd", 3, 4)
	f.Loop("", 1, false, func(l emit.Lane) {
		g := mul(f, l.Load(2), f.Scalar(0))
		w := l.Load(0)
		build.VFMADD231PS(f.Scalar(2), w, g)
		b := l.Load(1)
		build.VFMADD213PS(g, f.Scalar(1), b)
		l.Store(1, b)
		build.VFMADD231PS(f.Scalar(3), b, w)
		l.Store(0, w)
	})
	f.End()
}
