package num

import (
	"math"
	"math/big"
)

// prec is the precision of the oracle: enough for the cancellation of 2^26.
const prec = 240

func bigOf(x float64) *big.Float { return new(big.Float).SetPrec(prec).SetFloat64(x) }

// bigPi is pi by Machin's formula.
func bigPi() *big.Float {
	p := new(big.Float).Mul(bigOf(16), bigArctanInverse(5))
	return p.Sub(p, new(big.Float).Mul(bigOf(4), bigArctanInverse(239)))
}

func bigArctanInverse(n float64) *big.Float {
	return bigSeries(new(big.Float).Quo(bigOf(1), bigOf(n)), func(t *big.Float, k int) {
		t.Quo(t, bigOf(-n*n*float64(2*k+1)))
		t.Mul(t, bigOf(float64(2*k-1)))
	})
}

// bigSeries sums terms until they no longer count; next turns term k-1 into k.
func bigSeries(t *big.Float, next func(t *big.Float, k int)) *big.Float {
	s := new(big.Float).SetPrec(prec).Set(t)
	for k := 1; t.Sign() != 0 && (s.Sign() == 0 || t.MantExp(nil) > s.MantExp(nil)-prec); k++ {
		next(t, k)
		s.Add(s, t)
	}
	return s
}

// bigSinCos reduces by the nearest multiple of pi/2 and sums Taylor's series.
func bigSinCos(pi *big.Float, x float64) (sin, cos *big.Float) {
	half := new(big.Float).Quo(pi, bigOf(2))
	q, _ := new(big.Float).Quo(bigOf(x), half).Float64()
	n := math.Round(q)
	r := new(big.Float).Sub(bigOf(x), new(big.Float).Mul(bigOf(n), half))
	r2 := new(big.Float).Mul(r, r)
	alternating := func(first *big.Float, odd float64) *big.Float {
		return bigSeries(first, func(t *big.Float, k int) {
			t.Mul(t, r2)
			m := 2*float64(k) + odd
			t.Quo(t, bigOf(-m*(m-1)))
		})
	}
	s, c := alternating(new(big.Float).Set(r), 1), alternating(bigOf(1), 0)
	switch int64(n) & 3 {
	case 1:
		return c, s.Neg(s)
	case 2:
		return s.Neg(s), c.Neg(c)
	case 3:
		return c.Neg(c), s
	}
	return s, c
}

// bigExp is e^x from the series at x/2^k, squared k times.
func bigExp(x *big.Float) *big.Float {
	const k = 16
	r := new(big.Float).SetPrec(prec+32).SetMantExp(x, -k)
	s := bigSeries(new(big.Float).SetPrec(prec+32).SetInt64(1), func(t *big.Float, n int) {
		t.Mul(t, r)
		t.Quo(t, bigOf(float64(n)))
	})
	for range k {
		s.Mul(s, s)
	}
	return s
}

// bigLog solves e^y = x by Newton's method from a float64 start.
func bigLog(x float64) *big.Float {
	m, e := math.Frexp(x) // math.Log itself is wrong for subnormal x on amd64
	y := bigOf(math.Log(m) + float64(e)*math.Ln2)
	for range 2 { // 53 bits, 106, 212
		e := bigExp(y)
		y.Add(y, new(big.Float).Quo(new(big.Float).Sub(bigOf(x), e), e))
	}
	return y
}

// ulps is the distance of got from want in units of the last place of want.
func ulps(got float64, want *big.Float) float64 {
	e := max(want.MantExp(nil)-53, -1074)
	d := new(big.Float).Sub(bigOf(got), want)
	u, _ := d.SetMantExp(d, -e).Float64()
	return math.Abs(u)
}
