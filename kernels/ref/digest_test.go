package ref_test

import (
	"math"
	"math/big"
	"testing"

	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// TestHash against the definition, and slices against the whole.
func TestHash(t *testing.T) {
	d := newDesk(t)
	const n, h, id, first = 5, 7, 99, 3
	x, xs := d.random(n, h)
	xs[4], xs[9], xs[11] = fromB(0xffc00001), -inf, minusZ
	d.Write(x, xs)
	var want, got, parts kernels.Digest
	for i, v := range xs {
		a, b := kernels.Mix(id, first+uint64(i), uint64(kernels.Bits(v)))
		want.Add(kernels.Digest{A: a, B: b})
	}
	want.NonFinite = 2
	whole := kernels.Place{ID: id, First: first, RowStride: h}
	d.Hash(&got, x, whole)
	if got != want {
		t.Errorf("digest %+v, want %+v", got, want)
	}
	d.Hash(&parts, x.ColRange(4, 7), kernels.Place{ID: id, First: first + 4, RowStride: h})
	d.Hash(&parts, x.ColRange(0, 4), whole)
	if parts != want {
		t.Errorf("digest of two slices %+v, want %+v", parts, want)
	}
}

func TestHashChanged(t *testing.T) {
	d := newDesk(t)
	at := kernels.Place{ID: 5, First: 100, RowStride: 10}
	old := d.put(2, 3, []float32{0, 1, nan, 3, inf, 5})
	now := d.put(2, 3, []float32{minusZ, 1, fromB(0xff800001), 3, -inf, nan})
	var got, want kernels.Digest
	for _, index := range []uint64{100, 111, 112} {
		a, b := kernels.Mix(5, index, 1)
		want.Add(kernels.Digest{A: a, B: b})
	}
	if n := d.HashChanged(&got, now, old, at); n != 3 || got != want {
		t.Errorf("%d changed, digest %+v; want 3 and %+v", n, got, want)
	}
}

// TestSumSquares against arbitrary precision, over all magnitudes, in one piece
// and in shards.
func TestSumSquares(t *testing.T) {
	d := newDesk(t)
	for _, n := range []int{0, 1, 2, 3, 1001, 1<<16 + 1, 3<<16 - 1} {
		xs := make([]float32, n)
		exact := new(big.Float).SetPrec(1000)
		square := new(big.Float).SetPrec(1000)
		for i := range xs {
			switch {
			case n > 2000: // one bin, filled to the brim
				xs[i] = 0x1.fffffep0
			case i%5 == 0:
				xs[i] = fromB(d.r.Uint32() & 0x807fffff) // subnormal
			default:
				xs[i] = pick(d.r, 0, 255)
			}
			v := square.SetFloat64(float64(xs[i]))
			exact.Add(exact, v.Mul(v, v))
		}
		want, _ := exact.Float64()
		x := d.put(1, n, xs)
		var whole, shards kernels.SquareSum
		d.SumSquares(&whole, x)
		if got := whole.Sum(); got != want {
			t.Errorf("n %d: sum of squares %x, want %x", n, got, want)
		}
		cut := shard.Bounds(n, 3)
		for i := range 3 {
			var part kernels.SquareSum
			d.SumSquares(&part, x.Range(cut[i], cut[i+1]))
			shards.Add(&part)
		}
		if got := shards.Sum(); got != want {
			t.Errorf("n %d: sum over shards %x, want %x", n, got, want)
		}
	}
}

func TestSumSquaresSpecials(t *testing.T) {
	d := newDesk(t)
	wide := ref.New[float64]()
	for _, c := range []struct {
		x             []float32
		infinite, nan uint64
	}{
		{[]float32{1, inf, 2, -inf, 3}, 2, 0},
		{[]float32{nan, inf, 1}, 1, 1},
		{[]float32{1, fromB(0xff800001)}, 0, 1},
	} {
		var got, oracle kernels.SquareSum
		d.SumSquares(&got, d.put(1, len(c.x), c.x))
		buf, err := wide.Alloc(len(c.x))
		if err != nil {
			t.Fatal(err)
		}
		wide.Write(kernels.Flat(buf), c.x)
		wide.SumSquares(&oracle, kernels.Flat(buf))
		for _, s := range []kernels.SquareSum{got, oracle} {
			if s[kernels.SquareInf] != c.infinite || s[kernels.SquareNaN] != c.nan {
				t.Errorf("%v: %d infinite, %d NaN; want %d and %d", c.x, s[kernels.SquareInf], s[kernels.SquareNaN], c.infinite, c.nan)
			}
		}
	}
}

// TestSumSquares64: the oracle's sum is that of float64 arithmetic, as long as
// it lies above the unit.
func TestSumSquares64(t *testing.T) {
	b := ref.New[float64]()
	for _, x := range []float64{0, 1, 3, 0x1.8p-100, 0x1p-149, 0x1.23456789abcdep120, 1e-170} {
		buf, err := b.Alloc(2)
		if err != nil {
			t.Fatal(err)
		}
		b.Fill(kernels.Flat(buf), x)
		var s kernels.SquareSum
		b.SumSquares(&s, kernels.Flat(buf))
		if got, want := s.Sum(), 2*x*x; math.Abs(got-want) > 0x1p-298 {
			t.Errorf("two of %x: %x, want %x", x, got, want)
		}
	}
	buf, err := b.Alloc(1)
	if err != nil {
		t.Fatal(err)
	}
	b.Fill(kernels.Flat(buf), 1e153)
	var s kernels.SquareSum
	b.SumSquares(&s, kernels.Flat(buf))
	if !math.IsInf(s.Sum(), 1) {
		t.Errorf("1e306 gives %v, want +Inf", s.Sum())
	}
}
