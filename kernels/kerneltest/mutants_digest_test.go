package kerneltest_test

import (
	"math"
	"slices"

	"github.com/lockstep-ml/lockstep/kernels"
)

type (
	foldsLeft      struct{ kernels.Backend }
	absentZero     struct{ kernels.Backend }
	absentAllZero  struct{ kernels.Backend }
	firstOnly      struct{ kernels.Backend }
	maxPropagates  struct{ kernels.Backend }
	squaresFloat   struct{ kernels.Backend }
	squaresFinite  struct{ kernels.Backend }
	squaresRestart struct{ kernels.Backend }
	squaresFlush   struct{ kernels.Backend }
	hashDense      struct{ kernels.Backend }
	hashSequential struct{ kernels.Backend }
	hashRawNaN     struct{ kernels.Backend }
	hashBlind      struct{ kernels.Backend }
	changedValues  struct{ kernels.Backend }
	changedNaN     struct{ kernels.Backend }
)

func digestMutants(b kernels.Backend) []mutant {
	return []mutant{
		{"Reduce", "sources added from the left", foldsLeft{b}},
		{"Reduce", "an absent source is +0", absentZero{b}},
		{"Reduce", "all absent gives +0", absentAllZero{b}},
		{"Reduce", "only the first destination is set", firstOnly{b}},
		{"Reduce", "the maximum spreads NaN", maxPropagates{b}},
		{"SumSquares", "sums in float64", squaresFloat{b}},
		{"SumSquares", "does not count infinities", squaresFinite{b}},
		{"SumSquares", "does not continue", squaresRestart{b}},
		{"SumSquares", "flushes subnormals", squaresFlush{b}},
		{"Hash", "ignores the stride of rows", hashDense{b}},
		{"Hash", "ignores RowStride", hashSequential{b}},
		{"Hash", "hashes what a NaN carries", hashRawNaN{b}},
		{"Hash", "does not count what is not finite", hashBlind{b}},
		{"HashChanged", "-0 and +0 are the same", changedValues{b}},
		{"HashChanged", "NaN differs from NaN", changedNaN{b}},
	}
}

func (m foldsLeft) Reduce(dst, src []kernels.Tensor, op kernels.Op) {
	present := slices.DeleteFunc(slices.Clone(src), kernels.Tensor.Absent)
	if op != kernels.Sum || len(present) < 2 {
		m.Backend.Reduce(dst, src, op)
		return
	}
	x := get(m, present[0])
	for _, t := range present[1:] {
		for i, v := range get(m, t) {
			x[i] += v
		}
	}
	for _, t := range dst {
		put(m, t, x)
	}
}

// absentAs replaces absent sources by a value, for sums.
func absentAs(m kernels.Backend, dst, src []kernels.Tensor, op kernels.Op, v float64, when bool) {
	if op != kernels.Sum || !when || !slices.ContainsFunc(src, kernels.Tensor.Absent) {
		m.Reduce(dst, src, op)
		return
	}
	buf, err := m.Alloc(dst[0].Len())
	if err != nil {
		panic(err)
	}
	defer m.Free(buf)
	m.Fill(kernels.Flat(buf), v)
	src = slices.Clone(src)
	for i := range src {
		if src[i].Absent() {
			src[i] = kernels.Flat(buf)
		}
	}
	m.Reduce(dst, src, op)
}

func allAbsent(src []kernels.Tensor) bool {
	return !slices.ContainsFunc(src, func(t kernels.Tensor) bool { return !t.Absent() })
}

func (m absentZero) Reduce(dst, src []kernels.Tensor, op kernels.Op) {
	absentAs(m.Backend, dst, src, op, 0, !allAbsent(src))
}

func (m absentAllZero) Reduce(dst, src []kernels.Tensor, op kernels.Op) {
	absentAs(m.Backend, dst, src, op, 0, allAbsent(src))
}

func (m firstOnly) Reduce(dst, src []kernels.Tensor, op kernels.Op) {
	m.Backend.Reduce(dst[:min(1, len(dst))], src, op)
}

func (m maxPropagates) Reduce(dst, src []kernels.Tensor, op kernels.Op) {
	nans := map[int]bool{}
	for _, t := range src {
		if !t.Absent() && op == kernels.Max {
			for i, v := range get(m, t) {
				nans[i] = nans[i] || v != v
			}
		}
	}
	m.Backend.Reduce(dst, src, op)
	for _, t := range dst {
		for i, nan := range nans {
			if nan {
				m.Fill(t.Range(i, i+1), math.NaN())
			}
		}
	}
}

func (m squaresFloat) SumSquares(acc *kernels.SquareSum, x kernels.Tensor) {
	sum := 0.0
	for _, v := range get(m, x) {
		sum += float64(float64(v) * float64(v))
	}
	if sum-sum != 0 || sum < 0x1p-200 || sum > 0x1p100 {
		m.Backend.SumSquares(acc, x)
		return
	}
	u := math.Float64bits(sum)
	acc.AddScaled(0, u&(1<<52-1)|1<<52, int(u>>52)-1075+298)
}

func (m squaresFinite) SumSquares(acc *kernels.SquareSum, x kernels.Tensor) {
	n := acc[kernels.SquareInf]
	m.Backend.SumSquares(acc, x)
	acc[kernels.SquareInf] = n
}

func (m squaresRestart) SumSquares(acc *kernels.SquareSum, x kernels.Tensor) {
	*acc = kernels.SquareSum{}
	m.Backend.SumSquares(acc, x)
}

func (m squaresFlush) SumSquares(acc *kernels.SquareSum, x kernels.Tensor) {
	a := get(m, x)
	for i, v := range a {
		if v > -0x1p-126 && v < 0x1p-126 {
			a[i] = 0
		}
	}
	old := get(m, x)
	put(m, x, a)
	m.Backend.SumSquares(acc, x)
	put(m, x, old)
}

func (m hashDense) Hash(d *kernels.Digest, x kernels.Tensor, at kernels.Place) {
	x.Stride = x.Cols
	m.Backend.Hash(d, x, at)
}

func (m hashSequential) Hash(d *kernels.Digest, x kernels.Tensor, at kernels.Place) {
	at.RowStride = uint64(x.Cols)
	m.Backend.Hash(d, x, at)
}

func (m hashRawNaN) Hash(d *kernels.Digest, x kernels.Tensor, at kernels.Place) {
	for i, v := range get(m, x) {
		if v-v != 0 {
			d.NonFinite++
		}
		a, b := kernels.Mix(at.ID, at.First+uint64(i/x.Cols)*at.RowStride+uint64(i%x.Cols), uint64(math.Float32bits(v)))
		d.A, d.B = d.A+a, d.B+b
	}
}

func (m hashBlind) Hash(d *kernels.Digest, x kernels.Tensor, at kernels.Place) {
	n := d.NonFinite
	m.Backend.Hash(d, x, at)
	d.NonFinite = n
}

// changed is HashChanged with another idea of what differs.
func changed(m kernels.Backend, d *kernels.Digest, x, old kernels.Tensor, at kernels.Place, differ func(a, b float32) bool) int {
	n, b := 0, get(m, old)
	for i, v := range get(m, x) {
		if differ(v, b[i]) {
			n++
			p, q := kernels.Mix(at.ID, at.First+uint64(i/x.Cols)*at.RowStride+uint64(i%x.Cols), 1)
			d.A, d.B = d.A+p, d.B+q
		}
	}
	return n
}

func (m changedValues) HashChanged(d *kernels.Digest, x, old kernels.Tensor, at kernels.Place) int {
	return changed(m, d, x, old, at, func(a, b float32) bool { return a != b && (a == a || b == b) })
}

func (m changedNaN) HashChanged(d *kernels.Digest, x, old kernels.Tensor, at kernels.Place) int {
	return changed(m, d, x, old, at, func(a, b float32) bool { return a != b || kernels.Bits(a) != kernels.Bits(b) })
}
