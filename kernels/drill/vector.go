package drill

import (
	"fmt"
	"math"

	"github.com/lockstep-ml/lockstep/kernels"
)

// scalars are factors that float32 cannot hold, so that the one rounding of a
// scalar shows, and the special ones.
func scalars() []float64 {
	return []float64{0.1, 1, 1 + 0x1p-24 + 0x1p-40, -1.0 / 3, 0, math.Copysign(0, -1), 0x1p-140 / 3, 1e300, math.Inf(-1), math.NaN()}
}

func fillCases(tb *table) {
	for i, n := range lengths() {
		r, c := fold(n)
		v := scalars()[i%len(scalars())]
		tb.add(fmt.Sprintf("n%d_v%g", n, v), n,
			func(k kernels.Kernels, t []kernels.Tensor) { k.Fill(t[0], v) }, out("x", r, c))
	}
	tb.addLong("long", 2047, func(k kernels.Kernels, t []kernels.Tensor) { k.Fill(t[0], 0.1) }, out("x", 1, 4099))
}

func copyCases(tb *table) {
	for n, m := range sweep(lengths()) {
		r, c := fold(n)
		tb.add(label(n, m), n,
			func(k kernels.Kernels, t []kernels.Tensor) { k.Copy(t[0], t[1]) }, out("dst", r, c), in("src", r, c, m.fill))
	}
	// What a NaN carries is copied, too.
	for _, n := range []int{1, 33, 100} {
		c := tb.add(fmt.Sprintf("n%d_bits", n), n, func(k kernels.Kernels, t []kernels.Tensor) { k.Copy(t[0], t[1]) },
			out("dst", 1, n), in("src", 1, n, func(h uint64) float32 { return math.Float32frombits(uint32(h>>32) | 0x7fc00000) }))
		c.raw = true
	}
}

func addCases(tb *table) {
	f := func(k kernels.Kernels, t []kernels.Tensor) { k.Add(t[0], t[1], t[2]) }
	for n, m := range sweep(lengths()) {
		r, c := fold(n)
		x, y := in("x", r, c, m.fill), in("y", r, c, m.fill)
		tb.add(label(n, m), n, f, out("dst", r, c), x, y)
		g := func(k kernels.Kernels, t []kernels.Tensor) { k.Add(t[2], t[0], t[1]) }
		switch len(tb.cases) % 3 {
		case 0:
			tb.add(label(n, m)+"_dst=x", n, g, x, y, same("dst", 0))
		case 1:
			tb.add(label(n, m)+"_dst=y", n, g, x, y, same("dst", 1))
		case 2:
			tb.add(label(n, m)+"_dst=x=y", n, g, x, same("y", 0), same("dst", 0))
		}
	}
	tb.addLong("long", 683, f, out("dst", 1, 4099), in("x", 1, 4099, plain), in("y", 1, 4099, plain))
}

func scaleCases(tb *table) {
	i := 0
	for n, m := range sweep(lengths()) {
		r, c := fold(n)
		s := scalars()[i%len(scalars())]
		i++
		name := fmt.Sprintf("n%d_%s_s%g", n, m.name, s)
		tb.add(name, n, func(k kernels.Kernels, t []kernels.Tensor) { k.Scale(t[0], t[1], s) }, out("dst", r, c), in("x", r, c, m.fill))
		tb.add(name+"_dst=x", n, func(k kernels.Kernels, t []kernels.Tensor) { k.Scale(t[1], t[0], s) }, in("x", r, c, m.fill), same("dst", 0))
	}
	tb.addLong("long", 1025, func(k kernels.Kernels, t []kernels.Tensor) { k.Scale(t[0], t[1], 0.1) }, out("dst", 1, 4099), in("x", 1, 4099, plain))
}

// rowShapes are rows x columns for kernels that work by rows; the largest are
// split over threads, by rows and by columns.
func rowShapes() [][2]int {
	s := [][2]int{{0, 5}, {2, 0}, {0, 0}, {130, 3}, {3, 257}, {1, 1025}, {2, 34003}, {601, 65}, {521, 67}, {2, 33001}}
	for i, n := range residues() {
		s = append(s, [2]int{1 + i%4, n})
	}
	for _, n := range edges() {
		s = append(s, [2]int{n, 7})
	}
	return s
}

// byRows calls f for every row shape with plain values and, but for the largest,
// one other kind.
func byRows(f func(i, r, c int, m mode)) {
	ms := modes()
	for i, s := range rowShapes() {
		f(2*i, s[0], s[1], ms[0])
		if s[0]*s[1] < 20000 {
			f(2*i+1, s[0], s[1], ms[1+i%(len(ms)-1)])
		}
	}
}

// byMoreRows calls f, at level 2, for every number of columns with every number
// of rows up to those of a tile.
func (tb *table) byMoreRows(f func(i, r, c int, m mode)) {
	ms, i := modes(), 0
	tb.atLevel(2, func() {
		for c := range 131 {
			for r := 1; r <= 9; r += 2 {
				f(i, r, c, ms[i%len(ms)])
				i++
			}
		}
	})
}

// shape is the name of a matrix's case.
func shape(r, c int, m mode) string { return fmt.Sprintf("%dx%d_%s", r, c, m.name) }

func addBiasCases(tb *table) {
	byRows(func(i, r, c int, m mode) {
		tb.add(shape(r, c, m), r*c, func(k kernels.Kernels, t []kernels.Tensor) { k.AddBias(t[0], t[1]) },
			update("y", r, c, m.fill).strided(i%5), in("b", 1, c, m.fill))
	})
}

func columnSumCases(tb *table) {
	byRows(func(i, r, c int, m mode) {
		tb.add(shape(r, c, m), r*c, func(k kernels.Kernels, t []kernels.Tensor) { k.ColumnSum(t[0], t[1]) },
			update("dst", 1, c, m.fill), in("x", r, c, m.fill).strided(i%5))
	})
	// From -0, a column of -0 stays -0; without rows nothing changes.
	minus := func(uint64) float32 { return negZero() }
	for _, r := range []int{0, 1, 5} {
		tb.add(fmt.Sprintf("%dx19_minus0", r), 19*r, func(k kernels.Kernels, t []kernels.Tensor) { k.ColumnSum(t[0], t[1]) },
			update("dst", 1, 19, minus), in("x", r, 19, minus))
	}
}

func residualCases(tb *table) {
	byRows(func(i, r, c int, m mode) {
		bias := in("b", 1, c, m.fill)
		if i%4 >= 2 {
			bias = absent("b")
		}
		x, y := in("x", r, c, m.fill), in("y", r, c, m.fill)
		f := func(k kernels.Kernels, t []kernels.Tensor) { k.Residual(t[3], t[0], t[1], t[2]) }
		tb.add(shape(r, c, m), r*c, f, x, y, bias, out("dst", r, c))
		tb.add(shape(r, c, m)+"_dst=x", r*c, f, x, y, bias, same("dst", 0))
		tb.add(shape(r, c, m)+"_dst=y", r*c, f, x, y, bias, same("dst", 1))
	})
}

func swiGLUCases(tb *table) {
	i := 0
	for n, m := range sweep(lengths()) {
		r, c := fold(n)
		z, u := in("z", r, c, m.fill), in("u", r, c, m.fill)
		if i%2 == 1 {
			z.fill = exponents
		}
		i++
		f := func(k kernels.Kernels, t []kernels.Tensor) { k.SwiGLU(t[2], t[0], t[1]) }
		tb.add(label(n, m), 8*n, f, z, u, out("h", r, c))
		tb.add(label(n, m)+"_inplace", 8*n, f, z, u, same("h", i%2))
	}
	tb.addLong("long", 683, func(k kernels.Kernels, t []kernels.Tensor) { k.SwiGLU(t[0], t[1], t[2]) },
		out("h", 1, 4099), in("z", 1, 4099, exponents), in("u", 1, 4099, plain))
}

func swiGLUGradCases(tb *table) {
	i := 0
	for n, m := range sweep(lengths()) {
		r, c := fold(n)
		dh, z, u := in("dh", r, c, m.fill), in("z", r, c, m.fill), in("u", r, c, m.fill)
		if i%2 == 1 {
			z.fill = exponents
		}
		outputs := [][2]operand{
			{same("dz", 1), out("du", r, c)}, {same("dz", 0), out("du", r, c)}, {out("dz", r, c), same("du", 2)},
			{same("dz", 1), same("du", 2)}, {same("dz", 0), same("du", 2)},
		}[i%5]
		i++
		f := func(k kernels.Kernels, t []kernels.Tensor) { k.SwiGLUGrad(t[3], t[4], t[0], t[1], t[2]) }
		tb.add(label(n, m), 12*n, f, dh, z, u, out("dz", r, c), out("du", r, c))
		tb.add(label(n, m)+"_inplace", 12*n, f, dh, z, u, outputs[0], outputs[1])
	}
	tb.addLong("long", 411, func(k kernels.Kernels, t []kernels.Tensor) { k.SwiGLUGrad(t[0], t[1], t[2], t[3], t[4]) },
		out("dz", 1, 4099), out("du", 1, 4099), in("dh", 1, 4099, plain), in("z", 1, 4099, exponents), in("u", 1, 4099, plain))
}
