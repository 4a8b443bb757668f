package drill

import (
	"fmt"

	"github.com/lockstep-ml/lockstep/kernels"
)

// matrixSizes are M, N, K of a product.
type matrixSizes struct{ m, n, k int }

// matrixShapes are the shapes at which a blocked product goes wrong: nothing,
// less than a tile, one more or less than a tile in either direction, sums
// longer than a block of 384, and skewed ones.
func matrixShapes() []matrixSizes {
	var s []matrixSizes
	for _, m := range []int{0, 1, 2, 5} {
		for _, n := range []int{0, 1, 3} {
			for _, k := range []int{0, 1, 2, 3} {
				s = append(s, matrixSizes{m, n, k})
			}
		}
	}
	for _, m := range []int{1, 3, 4, 5, 6, 7, 8, 9, 12, 13} {
		for _, n := range []int{4, 15, 16, 17, 31, 32, 33, 47, 48, 49} {
			s = append(s, matrixSizes{m, n, 5 + (m+n)%4})
		}
	}
	for _, e := range edges() {
		s = append(s, matrixSizes{e, 5, 9}, matrixSizes{3, e, 9}, matrixSizes{4, 6, e})
	}
	for i, k := range []int{127, 128, 129, 255, 256, 257, 383, 384, 385, 511, 512, 513, 769, 1025} {
		s = append(s, matrixSizes{1 + i%3, 1 + 16*(i%4), k}, matrixSizes{13, 33, k})
	}
	return append(s, matrixSizes{1, 300, 40}, matrixSizes{300, 1, 40}, matrixSizes{1, 1, 3001}, matrixSizes{130, 3, 20},
		matrixSizes{64, 64, 64}, matrixSizes{65, 49, 97}, matrixSizes{97, 130, 65}, matrixSizes{61, 67, 389},
		matrixSizes{129, 257, 67})
}

// groupsOf rotates through no groups and 1, 2, 4 and 8 of them (at times 3 and
// 16), in all styles of cuts.
func groupsOf(i, k int) []int {
	if i%7 == 0 {
		return nil
	}
	g := [...]int{1, 2, 4, 8, 2, 4, 8, 3, 4, 16}[i%10]
	return cuts(k, g, i/2)
}

// groupLabel names groups in a case.
func groupLabel(groups []int) string {
	if groups == nil {
		return "nogroups"
	}
	return fmt.Sprintf("g%d", len(groups)-1)
}

// products calls f for every shape with plain values, and for the small ones
// with one other kind.
func products(f func(i int, s matrixSizes, m mode, name string)) {
	ms, i := modes(), 0
	for j, s := range matrixShapes() {
		for l, m := range ms {
			if l == 0 || l == 1+j%(len(ms)-1) && s.m*s.n*s.k < 20000 {
				f(i, s, m, fmt.Sprintf("m%d_n%d_k%d_%s", s.m, s.n, s.k, m.name))
				i++
			}
		}
	}
	// Every kind of value with every number of groups at one odd shape.
	for _, m := range ms {
		for range 10 {
			s := matrixSizes{5, 19, 23}
			f(i, s, m, fmt.Sprintf("m%d_n%d_k%d_%s", s.m, s.n, s.k, m.name))
			i++
		}
	}
}

// gap gives every second case strided rows.
func gap(i, operand int) int {
	if i%2 == 0 {
		return 0
	}
	return (i/2+3*operand)%9 + 1
}

func matMulNTCases(tb *table) {
	products(func(i int, s matrixSizes, m mode, name string) {
		groups := groupsOf(i, s.k)
		tb.add(name+"_"+groupLabel(groups), s.m*s.n*s.k,
			func(k kernels.Kernels, t []kernels.Tensor) { k.MatMulNT(t[0], t[1], t[2], groups) },
			out("c", s.m, s.n).strided(gap(i, 0)), in("a", s.m, s.k, m.fill).strided(gap(i, 1)), in("b", s.n, s.k, m.fill).strided(gap(i, 2)))
	})
}

func matMulTNCases(tb *table) {
	f := func(k kernels.Kernels, t []kernels.Tensor) { k.MatMulTN(t[0], t[1], t[2]) }
	products(func(i int, s matrixSizes, m mode, name string) {
		tb.add(name, s.m*s.n*s.k, f, update("c", s.m, s.n, m.fill).strided(gap(i, 0)),
			in("a", s.k, s.m, m.fill).strided(gap(i, 1)), in("b", s.k, s.n, m.fill).strided(gap(i, 2)))
	})
	// A stored -0 stays -0 under products that are -0, and without any: zero
	// padding of K would make it +0. A stored NaN or infinity stays as it is.
	minus, one := func(uint64) float32 { return negZero() }, func(uint64) float32 { return 1 }
	for _, s := range []matrixSizes{{7, 19, 0}, {5, 33, 1}, {3, 17, 3}, {9, 16, 5}, {4, 49, 13}, {2, 5, 385}} {
		name := fmt.Sprintf("m%d_n%d_k%d_minus0", s.m, s.n, s.k)
		tb.add(name, s.m*s.n*s.k, f, update("c", s.m, s.n, minus), in("a", s.k, s.m, minus), in("b", s.k, s.n, one))
	}
	for _, s := range []matrixSizes{{7, 19, 0}, {5, 33, 2}, {4, 16, 384}} {
		name := fmt.Sprintf("m%d_n%d_k%d_storednonfinite", s.m, s.n, s.k)
		tb.add(name, s.m*s.n*s.k, f, update("c", s.m, s.n, nonfinite), in("a", s.k, s.m, plain), in("b", s.k, s.n, plain))
	}
}

func matMulNNCases(tb *table) {
	products(func(i int, s matrixSizes, m mode, name string) {
		matMulNNCase(tb, i, s, m, name, 1+i%3)
	})
}

// matMulNNCase adds a case with a number of terms; the second and third have
// another K, possibly none.
func matMulNNCase(tb *table, i int, s matrixSizes, m mode, name string, terms int) {
	first := groupsOf(i, s.k)
	g := kernels.GroupCount(first)
	ops := []operand{out("c", s.m, s.n).strided(gap(i, 0))}
	var groups [][]int
	work := 0
	for j := range terms {
		k, cut := s.k, first
		if j > 0 {
			k = []int{s.k, s.k / 3, s.k + 5}[(i+j)%3]
			cut = cuts(k, g, i+j)
		}
		groups = append(groups, cut)
		work += s.m * s.n * k
		ops = append(ops, in(fmt.Sprintf("A%d", j), s.m, k, m.fill).strided(gap(i, 2*j+1)),
			in(fmt.Sprintf("B%d", j), k, s.n, m.fill).strided(gap(i, 2*j+2)))
	}
	tb.add(fmt.Sprintf("%s_terms%d_%s", name, terms, groupLabel(first)), work, func(k kernels.Kernels, t []kernels.Tensor) {
		var ts []kernels.Term
		for j := range terms {
			ts = append(ts, kernels.Term{A: t[1+2*j], B: t[2+2*j], Groups: groups[j]})
		}
		k.MatMulNN(t[0], ts)
	}, ops...)
}
