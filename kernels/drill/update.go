package drill

import (
	"fmt"

	"github.com/lockstep-ml/lockstep/kernels"
)

// adamWParams are a usual step, the first step with clipping, one without decay
// or momentum, and one whose learning rate is zero.
func adamWParams() []kernels.AdamWParams {
	return []kernels.AdamWParams{
		{LR: 3e-4, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: 0.1, C1: 0.40951, C2: 0.2262190625, Coef: 1},
		{LR: 1e-3, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, Decay: 0.01, C1: 0.1, C2: 0.001, Coef: 0.123456789},
		{LR: 0.1, Beta1: 0, Beta2: 0.99, Eps: 1e-6, Decay: 0, C1: 1, C2: 0.01, Coef: 1.0 / 3},
		{LR: 0, Beta1: 0.9, Beta2: 0.95, Eps: 0, Decay: 0.1, C1: 0.1, C2: 0.05, Coef: 1},
	}
}

func adamWCases(tb *table) {
	i := 0
	for n, m := range sweep(lengths()) {
		p := adamWParams()[i%len(adamWParams())]
		r, c := fold(n)
		v := update("v", r, c, positive)
		if i%5 == 4 {
			v.fill = m.fill // also negative: the square root is NaN
		}
		tb.add(fmt.Sprintf("%s_p%d", label(n, m), i%len(adamWParams())), 10*n,
			func(k kernels.Kernels, t []kernels.Tensor) { k.AdamW(t[0], t[1], t[2], t[3], p) },
			update("w", r, c, m.fill), update("m", r, c, m.fill), v, in("g", r, c, m.fill))
		i++
	}
}

func sgdCases(tb *table) {
	params := []kernels.SGDParams{
		{LR: 0.1, Momentum: 0.9, Decay: 0.01, Coef: 1},
		{LR: 0.01, Momentum: 0, Decay: 0, Coef: 0.123456789},
		{LR: 1.0 / 3, Momentum: 0.99, Decay: 1e-4, Coef: 1},
	}
	i := 0
	for n, m := range sweep(lengths()) {
		p := params[i%len(params)]
		r, c := fold(n)
		tb.add(fmt.Sprintf("%s_p%d", label(n, m), i%len(params)), 6*n,
			func(k kernels.Kernels, t []kernels.Tensor) { k.SGD(t[0], t[1], t[2], p) },
			update("w", r, c, m.fill), update("b", r, c, m.fill), in("g", r, c, m.fill))
		i++
	}
}

// reduceCases: 1 to 9 and 16 sources, with none, some or all of them absent,
// into a destination of its own, into every source, or into one of them.
func reduceCases(tb *table) {
	ms := modes()
	ns := []int{0, 1, 5, 16, 33, 65, 257, 4099}
	for sources := range 17 {
		if sources == 0 || sources > 9 && sources < 16 {
			continue
		}
		for style := range 9 {
			op := kernels.Op(style % 2)
			i := len(tb.cases)
			m := ms[i%len(ms)]
			if op == kernels.Max && i%4 == 1 {
				m = mode{"maxzeros", func(h uint64) float32 { return pick(h, negZero(), 0, nan(), negZero()) }}
			}
			reduceCase(tb, sources, style, ns[(i/3)%len(ns)], op, m)
		}
	}
	for n := range 67 {
		reduceCase(tb, 1+n%9, 6*(n%3), n, kernels.Sum, ms[n%len(ms)])
		reduceCase(tb, 1+n%5, 6*(n%3), n, kernels.Max, ms[n%len(ms)])
	}
	// Shared between threads; styles with and without absent sources.
	for sources := range 9 {
		for style := range 3 {
			reduceCase(tb, 1+sources, 3*style+2-style, 40007, kernels.Sum, ms[0])
		}
		reduceCase(tb, 1+sources, 0, 40007, kernels.Max, ms[sources%len(ms)])
	}
	reduceCase(tb, 2, 3, 40007, kernels.Sum, ms[0])
	reduceCase(tb, 4, 3, 40007, kernels.Sum, ms[0])
	tb.addLong("sum_src4_long", 411, func(k kernels.Kernels, t []kernels.Tensor) { k.Reduce(t[4:], t[:4], kernels.Sum) },
		in("src0", 1, 4099, plain), in("src1", 1, 4099, plain), in("src2", 1, 4099, plain), in("src3", 1, 4099, plain), out("dst", 1, 4099))
	manySources(tb)
}

// most is the largest number of sources. Worlds and logical workers are that many:
// beyond 32 a tree has a sixth level.
const most = 40

// manySources reduces every number of sources up to most: all there, some there; more
// than a block of elements, and what threads share, of a few numbers.
func manySources(tb *table) {
	ms := modes()
	for sources := 1; sources <= most; sources++ {
		reduceCaseOf(tb, sources, none, sources%3, 17+sources, kernels.Sum, ms[0])
		if sources < 10 {
			continue // of those there are others
		}
		reduceCaseOf(tb, sources, none, (sources+1)%3, 66, kernels.Sum, ms[sources%len(ms)])
		reduceCaseOf(tb, sources, absence(sources%int(absences)), sources%3, 35, kernels.Sum, ms[0])
		reduceCaseOf(tb, sources, half, sources%3, 33, kernels.Sum, ms[0])
		reduceCaseOf(tb, sources, none, sources%3, 33, kernels.Max, ms[sources%len(ms)])
	}
	for _, sources := range []int{18, 21, 32, 33} {
		reduceCaseOf(tb, sources, none, 1, 4099, kernels.Sum, ms[0])
	}
	reduceCaseOf(tb, 33, none, 0, 32777, kernels.Sum, ms[0])
}

// absence says which sources of a case are absent.
type absence int

// Which are: half is a seemingly random one.
const (
	none absence = iota
	evens
	all
	first
	last
	half
	absences
)

// of reports whether source j of n is absent; salt picks the random half.
func (a absence) of(j, n, salt int) bool {
	return [...]bool{false, j%2 == 0, true, j == 0, j == n-1, hash(uint64(salt), uint64(j))%2 == 0}[a]
}

// reduceCase adds one case: style/3 says where the result goes, style and the
// number of sources which of them are absent.
func reduceCase(tb *table, sources, style, n int, op kernels.Op, m mode) {
	reduceWith(tb, sources, absence((style*2+sources)%6), style, style/3, n, op, m)
}

// reduceCaseOf adds a case of given absent sources, with its result in a
// destination of its own (0), every source (1) or one of them (2).
func reduceCaseOf(tb *table, sources int, gone absence, where, n int, op kernels.Op, m mode) {
	reduceWith(tb, sources, gone, sources, where, n, op, m)
}

func reduceWith(tb *table, sources int, missing absence, salt, where, n int, op kernels.Op, m mode) {
	var ops []operand
	gone := 0
	for j := range sources {
		if missing.of(j, sources, salt) {
			ops, gone = append(ops, absent(fmt.Sprintf("src%d", j))), gone+1
			continue
		}
		ops = append(ops, in(fmt.Sprintf("src%d", j), 1, n, m.fill))
	}
	for j := range sources {
		all := where == 1
		switch {
		case (all || where == 2 && j == sources/2) && !ops[j].absent:
			ops = append(ops, same(fmt.Sprintf("dst%d", j), j))
		case all || j == 0:
			ops = append(ops, out(fmt.Sprintf("dst%d", j), 1, n))
		}
	}
	tb.add(fmt.Sprintf("%s_src%d_absent%d_dst%d_n%d_%s", op, sources, gone, len(ops)-sources, n, m.name), sources*n,
		func(k kernels.Kernels, t []kernels.Tensor) { k.Reduce(t[sources:], t[:sources], op) }, ops...)
}
