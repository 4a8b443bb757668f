package drill

import (
	"fmt"
	"math"

	"github.com/lockstep-ml/lockstep/kernels"
)

// tokens makes n indices for a table of rows [first, first+rows): most of them
// inside (so that some repeat), the others just outside, negative or extreme.
func tokens(seed uint64, n, first, rows int) []int32 {
	out := make([]int32, n)
	for i := range out {
		h := hash(seed, uint64(i))
		outside := []int64{int64(first) - 1, int64(first + rows), -1, math.MaxInt32, math.MinInt32, 0}
		if rows == 0 || h>>56 < 64 {
			out[i] = int32(outside[h%uint64(len(outside))])
			continue
		}
		out[i] = int32(first + int(h%uint64(rows)))
	}
	return out
}

// tableShapes are rows of x, rows of the table, columns, and the first row's index.
func tableShapes() [][4]int {
	s := [][4]int{{0, 5, 4, 0}, {4, 0, 4, 3}, {3, 5, 0, 0}, {70, 6, 33, 100}, {5, 1, 129, 7}, {33, 65, 17, 1 << 20}, {601, 31, 65, 9}, {61, 9, 601, 0}}
	for i, c := range residues() {
		s = append(s, [4]int{1 + 3*(i%5), 1 + i%7, c, 10 * (i % 3)})
	}
	// A table of more than 2^16 elements.
	return append(s, [4]int{1031, 2111, 37, 1000})
}

func embeddingCases(tb *table) {
	ms := modes()
	for i, s := range tableShapes() {
		m := ms[i%len(ms)]
		ids := tokens(hashName(tb.seed, "tokens")+uint64(i), s[0], s[3], s[1])
		tb.add(fmt.Sprintf("n%d_rows%d_h%d_first%d_%s", s[0], s[1], s[2], s[3], m.name), s[0]*s[2],
			func(k kernels.Kernels, t []kernels.Tensor) { k.Embedding(t[0], t[1], ids, s[3]) },
			out("x", s[0], s[2]), in("table", s[1], s[2], m.fill))
	}
}

func embeddingGradCases(tb *table) {
	ms := modes()
	for i, s := range tableShapes() {
		m := ms[i%len(ms)]
		ids := tokens(hashName(tb.seed, "tokens")+uint64(i), s[0], s[3], s[1])
		tb.add(fmt.Sprintf("n%d_rows%d_h%d_first%d_%s", s[0], s[1], s[2], s[3], m.name), s[0]*s[2],
			func(k kernels.Kernels, t []kernels.Tensor) { k.EmbeddingGrad(t[0], t[1], ids, s[3]) },
			update("dtable", s[1], s[2], m.fill), in("dx", s[0], s[2], m.fill))
	}
}

// logitShapes are rows and columns of logits; first rotates.
func logitShapes() [][2]int {
	s := [][2]int{{0, 5}, {2, 0}, {3, 258}, {2, 1025}, {130, 9}, {131, 258}, {3, 16391}, {2, 32771}}
	for i, c := range residues() {
		s = append(s, [2]int{1 + i%5, c})
	}
	return s
}

// logits calls f for every shape and two kinds of values.
func logits(tb *table, f func(i, r, c, first int, m mode, targets []int32, name string)) {
	ms := append(modes(), mode{"exponents", exponents})
	for i, s := range logitShapes() {
		for j, m := range []mode{ms[0], ms[1+i%(len(ms)-1)]} {
			first := []int{0, 64, 7}[i%3]
			ids := tokens(hashName(tb.seed, "targets")+uint64(i), s[0], first, s[1])
			f(2*i+j, s[0], s[1], first, m, ids, fmt.Sprintf("%s_first%d", shape(s[0], s[1], m), first))
		}
	}
}

func logitsMaxCases(tb *table) {
	logits(tb, func(_, r, c, first int, m mode, ids []int32, name string) {
		tb.add(name, r*c, func(k kernels.Kernels, t []kernels.Tensor) { k.LogitsMax(t[0], t[1], t[2], ids, first) },
			out("max", 1, r), out("target", 1, r), in("z", r, c, m.fill))
	})
	// The maximum of zeros is the first of them, whatever its sign; NaN is never
	// greater; a row of NaN or -Inf gives -Inf.
	for i, f := range []fill{
		func(h uint64) float32 { return pick(h, negZero(), 0) },
		func(h uint64) float32 { return pick(h, nan(), -1, 0, negZero()) },
		func(uint64) float32 { return nan() },
		func(uint64) float32 { return -inf() },
	} {
		for _, c := range []int{2, 17, 65} {
			tb.add(fmt.Sprintf("9x%d_special%d", c, i), 9*c, func(k kernels.Kernels, t []kernels.Tensor) {
				k.LogitsMax(t[0], t[1], t[2], []int32{0, 1, 0, 1, -1, 0, 1, 0, 1}, 0)
			}, out("max", 1, 9), out("target", 1, 9), in("z", 9, c, f))
		}
	}
}

func logitsExpSumCases(tb *table) {
	logits(tb, func(i, r, c, _ int, m mode, _ []int32, name string) {
		groups := groupsOf(i, c)
		tb.add(name+"_"+groupLabel(groups), 8*r*c, func(k kernels.Kernels, t []kernels.Tensor) { k.LogitsExpSum(t[0], t[1], t[2], groups) },
			out("sum", 1, r), update("z", r, c, m.fill), in("max", 1, r, positive))
	})
	for _, g := range append(manyGroups(), 1, 2, 4, 8) {
		for style := range 4 {
			groups := cuts(131, g, style)
			tb.add(fmt.Sprintf("3x131_style%d_g%d", style, g), 8*3*131, func(k kernels.Kernels, t []kernels.Tensor) { k.LogitsExpSum(t[0], t[1], t[2], groups) },
				out("sum", 1, 3), update("z", 3, 131, plain), in("max", 1, 3, positive))
		}
	}
}

func crossEntropyCases(tb *table) {
	logits(tb, func(i, r, c, first int, m mode, ids []int32, name string) {
		invN := []float64{1.0 / 3, 1.0 / 128, 1.0 / 1009}[i%3]
		sum := in("sum", 1, r, positive)
		if i%4 == 3 {
			sum.fill = m.fill // zero, negative, infinite and NaN denominators
		}
		tb.add(name, 4*r*c, func(k kernels.Kernels, t []kernels.Tensor) {
			k.CrossEntropy(t[0], t[1], t[2], t[3], t[4], ids, first, invN)
		},
			out("nll", 1, r), update("z", r, c, m.fill), sum, in("max", 1, r, m.fill), in("target", 1, r, m.fill))
	})
	// All rows ignored, and z full of NaN: the gradient is +0 all the same.
	tb.add("3x17_ignored", 51, func(k kernels.Kernels, t []kernels.Tensor) {
		k.CrossEntropy(t[0], t[1], t[2], t[3], t[4], []int32{-1, -100, math.MinInt32}, 0, 1)
	}, out("nll", 1, 3), update("z", 3, 17, func(uint64) float32 { return nan() }), in("sum", 1, 3, positive), in("max", 1, 3, plain), in("target", 1, 3, plain))
}
