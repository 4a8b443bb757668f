package ref_test

import (
	"flag"
	"math"
	"sync"
	"testing"

	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

var exhaustive = flag.Bool("exhaustive", false, "sweep every float32 in the tests of Exp32 and Log32, minutes instead of a second")

// ulpError is |got-want| in units of the last place of float32 at want.
func ulpError(got float32, want float64) float64 {
	if float64(got) == want {
		return 0
	}
	_, e := math.Frexp(want)
	return math.Abs(float64(got)-want) / math.Ldexp(1, max(e-24, -149))
}

// sweep is the worst error over the bit patterns [lo, hi], all or every stride-th.
func sweep(f func(float32) float32, want func(float64) float64, lo, hi, stride uint64) (worst float64, at float32) {
	if *exhaustive {
		stride = 1
	}
	const parts = 4
	var mu sync.Mutex
	var wg sync.WaitGroup
	for part := range uint64(parts) {
		wg.Go(func() {
			w, x0 := 0.0, float32(0)
			for u := lo + part*stride; u <= hi; u += parts * stride {
				x := fromB(uint32(u))
				if e := ulpError(f(x), want(float64(x))); !(e <= w) {
					w, x0 = e, x
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if !(w <= worst) {
				worst, at = w, x0
			}
		})
	}
	wg.Wait()
	return worst, at
}

const (
	maxExpULP = 0.866
	maxLogULP = 0.818
)

func bitsAt(x float32) uint64 { return uint64(math.Float32bits(x)) }

func TestExp32Error(t *testing.T) {
	for _, r := range []struct {
		name   string
		lo, hi uint64
	}{
		{"positive", 0, bitsAt(0x1.62e42ep6)},
		{"negative", bitsAt(minusZ), bitsAt(-104)},
	} {
		worst, at := sweep(ref.Exp32, math.Exp, r.lo, r.hi, 2003)
		t.Logf("%s: at most %.5f ulp, at %x", r.name, worst, at)
		if !(worst <= maxExpULP) {
			t.Errorf("%s: %.5f ulp at %x, want at most %v", r.name, worst, at, maxExpULP)
		}
	}
}

func TestLog32Error(t *testing.T) {
	for _, r := range []struct {
		name   string
		lo, hi uint64
	}{
		{"subnormal", 1, bitsAt(0x1p-126)},
		{"normal", bitsAt(0x1p-126), bitsAt(math.MaxFloat32)},
		{"near 1", bitsAt(0.66), bitsAt(1.34)},
	} {
		worst, at := sweep(ref.Log32, math.Log, r.lo, r.hi, 1009)
		t.Logf("%s: at most %.5f ulp, at %x", r.name, worst, at)
		if !(worst <= maxLogULP) {
			t.Errorf("%s: %.5f ulp at %x, want at most %v", r.name, worst, at, maxLogULP)
		}
	}
}

func TestExpLogEdges(t *testing.T) {
	next := func(x float32, d int32) float32 { return fromB(uint32(int32(math.Float32bits(x)) + d)) }
	for _, c := range []struct {
		name    string
		f       func(float32) float32
		x, want float32
	}{
		{"exp", ref.Exp32, 0, 1}, {"exp", ref.Exp32, minusZ, 1}, {"exp", ref.Exp32, -inf, 0},
		{"exp", ref.Exp32, inf, inf}, {"exp", ref.Exp32, nan, nan}, {"exp", ref.Exp32, fromB(0xff800001), nan},
		{"exp", ref.Exp32, next(0x1.62e42ep6, 1), inf}, {"exp", ref.Exp32, 0x1.62e42ep6, 0x1.ffff08p127},
		{"exp", ref.Exp32, math.MaxFloat32, inf}, {"exp", ref.Exp32, -math.MaxFloat32, 0},
		{"exp", ref.Exp32, -104, 0}, {"exp", ref.Exp32, -103.97, math.SmallestNonzeroFloat32},
		{"exp", ref.Exp32, next(-104, 1), 0}, {"exp", ref.Exp32, math.SmallestNonzeroFloat32, 1},
		{"log", ref.Log32, 0, -inf}, {"log", ref.Log32, minusZ, -inf}, {"log", ref.Log32, 1, 0},
		{"log", ref.Log32, inf, inf}, {"log", ref.Log32, -inf, nan}, {"log", ref.Log32, -math.SmallestNonzeroFloat32, nan},
		{"log", ref.Log32, nan, nan}, {"log", ref.Log32, math.SmallestNonzeroFloat32, -0x1.9d1dap6},
		{"log", ref.Log32, math.MaxFloat32, 0x1.62e43p6},
	} {
		if got := c.f(c.x); kernels.Bits(got) != kernels.Bits(c.want) {
			t.Errorf("%s(%x) = %x, want %x", c.name, c.x, got, c.want)
		}
	}
}
