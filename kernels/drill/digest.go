package drill

import (
	"fmt"
	"math"

	"github.com/lockstep-ml/lockstep/kernels"
)

// sumSquaresCases are held against the definition in integers: a float32 is
// m * 2^e with e >= -149, so its square is m*m * 2^(2e+298) in units of 2^-298.
func sumSquaresCases(tb *table) {
	for n, m := range sweep(lengths()) {
		squareCase(tb, n, m)
	}
	// The largest squares of one exponent, in numbers that overflow 64 bits.
	for i, f := range []fill{
		func(uint64) float32 { return 0x1.fffffep0 },
		func(uint64) float32 { return -math.MaxFloat32 },
		func(uint64) float32 { return math.Float32frombits(0x7fffff) },
	} {
		squareCase(tb, 140003, mode{fmt.Sprintf("ends%d", i), f})
	}
	contendedSquares(tb)
}

// squareCase adds a case of n elements.
func squareCase(tb *table, n int, m mode) {
	r, c := fold(n)
	start := kernels.SquareSum{0: uint64(n), 3: math.MaxUint32, 4: math.MaxUint32, 9: 5, kernels.SquareInf: 2, kernels.SquareNaN: uint64(n % 2)}
	tc := tb.add(label(n, m), n, nil, in("x", r, c, m.fill))
	tc.call = func(k kernels.Kernels, t []kernels.Tensor) any {
		acc := start
		k.SumSquares(&acc, t[0])
		return acc
	}
	tc.definition = func(x [][]float32) any {
		acc := start
		for _, v := range x[0] {
			addSquare(&acc, v)
		}
		return acc
	}
}

// addSquare is the definition of SumSquares for one element.
func addSquare(acc *kernels.SquareSum, v float32) {
	u := math.Float32bits(v)
	exp, m := int(u>>23&0xff), uint64(u&0x7fffff)
	switch {
	case exp == 0xff && m != 0:
		acc[kernels.SquareNaN]++
		return
	case exp == 0xff:
		acc[kernels.SquareInf]++
		return
	case exp == 0:
		exp = 1
	default:
		m |= 1 << 23
	}
	acc.AddScaled(0, m*m, 2*(exp-150)+298)
}

// mixElement adds one element to a digest by definition.
func mixElement(d *kernels.Digest, id, index uint64, v float32) {
	a, b := kernels.Mix(id, index, uint64(kernels.Bits(v)))
	d.A += a
	d.B += b
	if v-v != 0 {
		d.NonFinite++
	}
}

// hashPlaces are where views lie in logical tensors: dense, a column slice of a
// wider one, one row repeated, and indices beyond 2^32 and up to 2^64.
func hashPlaces(cols int) []kernels.Place {
	return []kernels.Place{
		{ID: kernels.TensorID("a"), First: 0, RowStride: uint64(cols)},
		{ID: kernels.TensorID("b"), First: 12345, RowStride: uint64(3*cols + 7)},
		{ID: 0, First: 1 << 40, RowStride: 0},
		{ID: math.MaxUint64, First: math.MaxUint64 - 2, RowStride: 1<<33 + 1},
	}
}

// digests is byRows, and one row of many pieces.
func digests(f func(i, r, c int, m mode)) {
	byRows(f)
	f(0, 1, 140003, mode{"plain", plain})
	f(4, 1, 140003, mode{"nonfinite", nonfinite})
}

// hashCases are held against kernels.Mix; every second one hashes by pieces.
func hashCases(tb *table) {
	digests(func(i, r, c int, m mode) {
		at := hashPlaces(c)[i/2%4]
		start := kernels.Digest{A: uint64(i), B: math.MaxUint64, NonFinite: uint64(i % 3)}
		name := shape(r, c, m)
		pieces := i%4 >= 2
		if pieces {
			name += "_pieces"
		}
		tc := tb.add(name, 2*r*c, nil, in("x", r, c, m.fill).strided(i%5))
		tc.call = func(k kernels.Kernels, t []kernels.Tensor) any {
			d := start
			if pieces {
				hashPieces(k, &d, t[0], at)
			} else {
				k.Hash(&d, t[0], at)
			}
			return d
		}
		tc.definition = func(x [][]float32) any {
			d := start
			for j, v := range x[0] {
				mixElement(&d, at.ID, at.First+uint64(j/c)*at.RowStride+uint64(j%c), v)
			}
			return d
		}
	})
	contendedHash(tb)
}

// hashPieces hashes x in four quarters, at their places, last one first.
func hashPieces(k kernels.Kernels, d *kernels.Digest, x kernels.Tensor, at kernels.Place) {
	r, c := x.Rows/2, x.Cols/3
	for q := 3; q >= 0; q-- {
		lo, hi, left, right := 0, r, 0, c
		if q >= 2 {
			lo, hi = r, x.Rows
		}
		if q%2 == 1 {
			left, right = c, x.Cols
		}
		part := kernels.Place{ID: at.ID, First: at.First + uint64(lo)*at.RowStride + uint64(left), RowStride: at.RowStride}
		k.Hash(d, x.RowRange(lo, hi).ColRange(left, right), part)
	}
}

// hashChange is what HashChanged gives.
type hashChange struct {
	Digest  kernels.Digest
	Changed int
}

// fewValues agree often, in value or only nearly: zeros of both signs, NaN that
// carry different bits.
func fewValues(h uint64) float32 {
	return pick(h, 0, negZero(), 1, 1, nan(), loadedNaN(), inf(), 1+0x1p-23)
}

func hashChangedCases(tb *table) {
	digests(func(i, r, c int, m mode) {
		if i%3 > 0 {
			m = mode{"few", fewValues}
		}
		at := hashPlaces(c)[i/2%4]
		start := kernels.Digest{A: uint64(i), NonFinite: 1}
		old := in("old", r, c, m.fill)
		if i%7 == 6 {
			old = same("old", 0)
		}
		tc := tb.add(fmt.Sprintf("%s_self%t", shape(r, c, m), old.alias == 0), 2*r*c, nil, in("x", r, c, m.fill), old)
		tc.call = func(k kernels.Kernels, t []kernels.Tensor) any {
			h := hashChange{Digest: start}
			h.Changed = k.HashChanged(&h.Digest, t[0], t[1], at)
			return h
		}
		tc.definition = func(x [][]float32) any {
			h := hashChange{Digest: start}
			for j, v := range x[0] {
				if old.alias != 0 && kernels.Bits(v) != kernels.Bits(x[1][j]) {
					h.Changed++
					mixElement(&h.Digest, at.ID, at.First+uint64(j/c)*at.RowStride+uint64(j%c), math.Float32frombits(1))
				}
			}
			return h
		}
	})
	contendedChanges(tb)
}
