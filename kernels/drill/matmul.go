package drill

import (
	"fmt"
	"slices"

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

// manyGroups are numbers of groups beyond what tiles may keep.
func manyGroups() []int { return []int{32, 64, 127, 255, 256, 257, 512, 1025} }

// groupLabel names groups in a case.
func groupLabel(groups []int) string {
	if groups == nil {
		return "nogroups"
	}
	return fmt.Sprintf("g%d", len(groups)-1)
}

// tileShapes have every height of a tile with every width in steps of eight, in
// whole vectors and not, and every remainder of a product's width.
func tileShapes() []matrixSizes {
	var s []matrixSizes
	for m := 1; m <= 13; m++ {
		for n := 8; n <= 64; n += 8 {
			s = append(s, matrixSizes{m, n, 0}, matrixSizes{m, n - 1 - (m+n/8)%7, 0})
		}
	}
	for n := 1; n <= 130; n++ {
		s = append(s, matrixSizes{1 + 5*n%13, n, 0})
	}
	for m := 14; m <= 49; m++ {
		s = append(s, matrixSizes{m, 17 + m%3, 0})
	}
	for i := range s {
		s[i].k = 16 + 4*(i%8) + i%5 // in four groups: of every length from 4 to 11, and unequal
	}
	return s
}

// longShapes have sums of several blocks in tiles of every width and in products
// of several tiles.
func longShapes() []matrixSizes {
	return []matrixSizes{
		{6, 64, 513}, {8, 48, 514}, {13, 128, 1027}, {6, 32, 1539}, {12, 64, 2051}, {5, 16, 1025}, {6, 16, 515}, {8, 33, 777},
		{9, 130, 1100}, {3, 61, 1541}, {6, 8, 1031}, {8, 96, 1026},
	}
}

// blockShapes have several blocks of columns, with many rows and with few, the
// second one of k too.
func blockShapes() []matrixSizes {
	return []matrixSizes{{13, 390, 40}, {7, 450, 530}, {13, 801, 21}, {3, 391, 17}, {5, 801, 13}, {12, 1300, 9}}
}

// stripShapes have so many rows that k-major A is packed in several strips, and
// in several chunks of them, with several blocks of columns, of k, or of neither.
func stripShapes() []matrixSizes {
	return []matrixSizes{{265, 17, 9}, {265, 390, 5}, {270, 17, 515}, {1545, 3, 515}, {1549, 387, 3}}
}

// sharedShapes are so large that threads share them, by rows and by columns, with
// remainders in either, some with sums of several blocks.
func sharedShapes() []matrixSizes {
	return []matrixSizes{
		{20, 401, 270}, {401, 20, 270}, {130, 131, 131}, {131, 130, 131}, {140, 270, 60}, {301, 271, 29}, {13, 130, 1300}, {7, 601, 521}, {601, 7, 521},
	}
}

// products calls f for every shape with plain values, and for the small ones
// with one other kind.
func products(f func(i int, s matrixSizes, m mode, name string)) {
	ms, i := modes(), 0
	add := func(s matrixSizes, m mode) {
		f(i, s, m, fmt.Sprintf("m%d_n%d_k%d_%s", s.m, s.n, s.k, m.name))
		i++
	}
	for j, s := range matrixShapes() {
		add(s, ms[0])
		if s.m*s.n*s.k < 20000 {
			add(s, ms[1+j%(len(ms)-1)])
		}
	}
	for _, s := range slices.Concat(longShapes(), blockShapes(), sharedShapes()) {
		add(s, ms[0])
	}
	// Every kind of value with every number of groups at one odd shape.
	for _, m := range ms {
		for range 10 {
			add(matrixSizes{5, 19, 23}, m)
		}
	}
}

// thorough calls f, at level 2, for the products of heights and widths, for sums
// of every length about those of blocks, and for more products that are shared.
func (tb *table) thorough(f func(i int, s matrixSizes, m mode, name string)) {
	tb.atLevel(2, func() {
		i, m := 0, modes()[0]
		add := func(s matrixSizes) {
			f(i, s, m, fmt.Sprintf("m%d_n%d_k%d_%s", s.m, s.n, s.k, m.name))
			i++
		}
		for m := 1; m <= 17; m++ {
			for n := 1; n <= 130; n++ {
				add(matrixSizes{m, n, 5 + (m+n)%7})
			}
		}
		for k := 500; k <= 530; k++ {
			add(matrixSizes{6 + k%3, 64 - k%2, k})
			add(matrixSizes{8, 48, 2 * k})
		}
		for j := range 24 {
			for _, s := range []matrixSizes{{m: 33 + 37*j%500, n: 33 + 53*j%700}, {m: 600 - 23*j, n: 3 + 5*j}} {
				s.k = 2300000/(s.m*s.n) + 1
				add(s)
			}
		}
		add(matrixSizes{265, 390, 513})
	})
}

// far is a gap between rows of B so long that backends pack them.
const far = 520

// gap gives every second case strided rows.
func gap(i, operand int) int {
	if i%2 == 0 {
		return 0
	}
	return (i/2+3*operand)%9 + 1
}

func matMulNTCases(tb *table) {
	add := func(i int, s matrixSizes, m mode, name string, groups []int) {
		tb.add(name+"_"+groupLabel(groups), s.m*s.n*s.k,
			func(k kernels.Kernels, t []kernels.Tensor) { k.MatMulNT(t[0], t[1], t[2], groups) },
			out("c", s.m, s.n).strided(gap(i, 0)), in("a", s.m, s.k, m.fill).strided(gap(i, 1)), in("b", s.n, s.k, m.fill).strided(gap(i, 2)))
	}
	rotate := func(i int, s matrixSizes, m mode, name string) { add(i, s, m, name, groupsOf(i, s.k)) }
	products(rotate)
	for i, s := range tileShapes() {
		add(i, s, mode{"tile", plain}, fmt.Sprintf("m%d_n%d_k%d_tile", s.m, s.n, s.k), cuts(s.k, 4, 0))
	}
	for _, s := range longShapes() {
		add(0, s, mode{"plain", plain}, fmt.Sprintf("m%d_n%d_k%d_long", s.m, s.n, s.k), cuts(s.k, 2, 0))
	}
	for i, g := range manyGroups() {
		add(i, matrixSizes{7, 35, 530}, mode{"plain", plain}, "m7_n35_k530", cuts(530, g, 0))
	}
	tb.thorough(rotate)
}

func matMulTNCases(tb *table) {
	f := func(k kernels.Kernels, t []kernels.Tensor) { k.MatMulTN(t[0], t[1], t[2]) }
	add := func(i int, s matrixSizes, m mode, name string, apart int) {
		tb.add(name, s.m*s.n*s.k, f, update("c", s.m, s.n, m.fill).strided(gap(i, 0)),
			in("a", s.k, s.m, m.fill).strided(gap(i, 1)), in("b", s.k, s.n, m.fill).strided(apart))
	}
	rotate := func(i int, s matrixSizes, m mode, name string) { add(i, s, m, name, gap(i, 2)) }
	products(rotate)
	for i, s := range tileShapes() {
		s.k /= 4 // one group
		add(i, s, mode{"tile", plain}, fmt.Sprintf("m%d_n%d_k%d_tile", s.m, s.n, s.k), gap(i, 2))
	}
	for i, s := range stripShapes() {
		add(i, s, mode{"strips", plain}, fmt.Sprintf("m%d_n%d_k%d_strips", s.m, s.n, s.k), gap(i, 2))
	}
	for i, s := range farShapes() {
		add(i, s, mode{"far", plain}, fmt.Sprintf("m%d_n%d_k%d_far", s.m, s.n, s.k), far+i)
	}
	tb.thorough(rotate)
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

// farShapes are products whose B has its rows far apart: of tiles of every width,
// of many rows and few, of several blocks of k and of columns.
func farShapes() []matrixSizes {
	s := []matrixSizes{{13, 390, 40}, {16, 70, 520}, {14, 450, 1030}, {5, 64, 30}, {12, 64, 9}, {140, 270, 60}}
	for n := 7; n <= 64; n += 4 {
		s = append(s, matrixSizes{13 + n%6, n + n%2, 12 + n%5})
	}
	return append(s, matrixSizes{13, 48, 11}, matrixSizes{13, 64, 11}, matrixSizes{13, 96, 11}, matrixSizes{13, 300, 7})
}

func matMulNNCases(tb *table) {
	rotate := func(i int, s matrixSizes, m mode, name string) {
		matMulNNCase(tb, i, s, m, name, groupsOf(i, s.k), 1+i%3, gap)
	}
	products(rotate)
	for i, s := range tileShapes() {
		matMulNNCase(tb, i, s, mode{"tile", plain}, fmt.Sprintf("m%d_n%d_k%d_tile", s.m, s.n, s.k), cuts(s.k, 4, 0), 2, gap)
	}
	apart := func(i, operand int) int {
		if operand > 0 && operand%2 == 0 { // B
			return far + i
		}
		return gap(i, operand)
	}
	for i, s := range farShapes() {
		matMulNNCase(tb, i, s, mode{"far", plain}, fmt.Sprintf("m%d_n%d_k%d_far", s.m, s.n, s.k), groupsOf(i, s.k), 1+i%2, apart)
	}
	for _, s := range longShapes() {
		matMulNNCase(tb, 0, s, mode{"plain", plain}, fmt.Sprintf("m%d_n%d_k%d_long", s.m, s.n, s.k), cuts(s.k, 2, 0), 1, gap)
	}
	for i, g := range append(manyGroups(), 1, 4) {
		matMulNNCase(tb, i, matrixSizes{7, 35, 530}, mode{"plain", plain}, "m7_n35_k530", cuts(530, g, 0), 2+i%4, gap)
	}
	tb.thorough(rotate)
}

// matMulNNCase adds a case with a number of terms; the second and later ones
// have another K, possibly none. between gives the gaps between rows.
func matMulNNCase(tb *table, i int, s matrixSizes, m mode, name string, first []int, terms int, between func(i, operand int) int) {
	g := kernels.GroupCount(first)
	ops := []operand{out("c", s.m, s.n).strided(between(i, 0))}
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
		ops = append(ops, in(fmt.Sprintf("A%d", j), s.m, k, m.fill).strided(between(i, 2*j+1)),
			in(fmt.Sprintf("B%d", j), k, s.n, m.fill).strided(between(i, 2*j+2)))
	}
	tb.add(fmt.Sprintf("%s_terms%d_%s", name, terms, groupLabel(first)), work, func(k kernels.Kernels, t []kernels.Tensor) {
		var ts []kernels.Term
		for j := range terms {
			ts = append(ts, kernels.Term{A: t[1+2*j], B: t[2+2*j], Groups: groups[j]})
		}
		k.MatMulNN(t[0], ts)
	}, ops...)
}
