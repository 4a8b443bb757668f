package num

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// sample gives n numbers, uniform and log-uniform in turn, of both signs.
func sample(n int, smallest, largest float64) []float64 {
	r := rand.New(rand.NewPCG(1, 2))
	x := make([]float64, n)
	for i := range x {
		x[i] = r.Float64() * largest
		if i%2 == 0 {
			x[i] = math.Exp(math.Log(smallest) + r.Float64()*(math.Log(largest)-math.Log(smallest)))
		}
		if i%4 < 2 {
			x[i] = -x[i]
		}
	}
	return x
}

// within fails if a value is further than bound ulps from its oracle, and logs
// the worst.
func within(t *testing.T, name string, bound float64, xs []float64, f func(float64) float64, oracle func(float64) *big.Float) {
	t.Helper()
	worst, at := 0.0, 0.0
	for _, x := range xs {
		want := oracle(x)
		if w, _ := want.Float64(); want.Sign() == 0 || math.IsInf(w, 0) {
			if got := f(x); got != w {
				t.Errorf("%s(%v) = %v, want %v", name, x, got, w)
			}
			continue
		}
		u := ulps(f(x), want)
		if !(u <= worst) {
			worst, at = u, x
		}
	}
	t.Logf("%s: worst %.3f ulp at %x over %d values", name, worst, at, len(xs))
	if !(worst <= bound) {
		t.Errorf("%s: %.3f ulp at %x, want at most %v", name, worst, at, bound)
	}
}

// nearMultiples holds the float64 nearest to n*pi/2 and its neighbours: there
// the reduction cancels most.
func nearMultiples() []float64 {
	var x []float64
	for n := 1.0; n < 1<<25; n = math.Ceil(n * 1.01) {
		y := n * (math.Pi / 2)
		x = append(x, y, math.Nextafter(y, 0), math.Nextafter(y, 1e9))
	}
	return x
}

func TestSinCosAgainstBig(t *testing.T) {
	pi := bigPi()
	xs := append(sample(12000, 1e-9, maxAngle), sample(4000, 1e-3, 10)...)
	xs = append(xs, nearMultiples()...)
	xs = append(xs, 0.785, math.Pi/4, math.Nextafter(0.785, 0), maxAngle-1, math.Nextafter(maxAngle, 0), 5e-324, 0x1p-30)
	within(t, "Sin", 0.8, xs, Sin, func(x float64) *big.Float { s, _ := bigSinCos(pi, x); return s })
	within(t, "Cos", 0.8, xs, Cos, func(x float64) *big.Float { _, c := bigSinCos(pi, x); return c })
}

func TestSinCosOutside(t *testing.T) {
	for _, x := range []float64{maxAngle, -maxAngle, 1e300, math.Inf(1), math.Inf(-1), math.NaN()} {
		if s, c := Sin(x), Cos(x); !math.IsNaN(s) || !math.IsNaN(c) {
			t.Errorf("Sin, Cos(%v) = %v, %v, want NaN", x, s, c)
		}
	}
	if s := Sin(math.Copysign(0, -1)); s != 0 || !math.Signbit(s) {
		t.Errorf("Sin(-0) = %v, want -0", s)
	}
}

// TestSinCosSymmetry: sin is odd and cos is even, in every bit.
func TestSinCosSymmetry(t *testing.T) {
	for _, x := range sample(20000, 1e-9, maxAngle) {
		if Sin(-x) != -Sin(x) || Cos(-x) != Cos(x) {
			t.Fatalf("x = %x: Sin %v and %v, Cos %v and %v", x, Sin(x), Sin(-x), Cos(x), Cos(-x))
		}
	}
}

func TestExpAgainstBig(t *testing.T) {
	normal := append(sample(20000, 1e-12, 708), 0, 1, -1, math.Ln2/2, -math.Ln2/2, 709.78271289338397)
	within(t, "Exp", 0.7, normal, Exp, func(x float64) *big.Float { return bigExp(bigOf(x)) })
	var subnormal []float64
	for x := -708.4; x > -745; x -= 0.013 {
		subnormal = append(subnormal, x)
	}
	within(t, "Exp, subnormal", 1.1, subnormal, Exp, func(x float64) *big.Float { return bigExp(bigOf(x)) })
}

func TestExpSpecial(t *testing.T) {
	for x, want := range map[float64]float64{
		709.782712893384: 1.7976931348622732e308, 709.7827128933841: math.Inf(1), 710: math.Inf(1), math.Inf(1): math.Inf(1),
		-745.13: 5e-324, -745.14: 0, -746: 0, math.Inf(-1): 0, 0: 1, 5e-324: 1,
	} {
		if got := Exp(x); got != want {
			t.Errorf("Exp(%v) = %v, want %v", x, got, want)
		}
	}
	if got := Exp(math.NaN()); !math.IsNaN(got) {
		t.Errorf("Exp(NaN) = %v", got)
	}
}

func TestLogAgainstBig(t *testing.T) {
	var xs []float64
	for _, x := range sample(12000, 5e-320, 1e300) {
		xs = append(xs, math.Abs(x))
	}
	for _, x := range sample(12000, 1e-15, 0.6) {
		xs = append(xs, 1+x) // the neighbourhood of 1, where log cancels
	}
	xs = append(xs, 2, 0.5, 10000, 1e6, math.Sqrt2, math.Nextafter(math.Sqrt2, 2), 5e-324, math.MaxFloat64, math.Nextafter(1, 0), math.Nextafter(1, 2))
	within(t, "Log", 0.9, xs, Log, bigLog)
}

func TestLogSpecial(t *testing.T) {
	for x, want := range map[float64]float64{0: math.Inf(-1), math.Inf(1): math.Inf(1), 1: 0} {
		if got := Log(x); got != want {
			t.Errorf("Log(%v) = %v, want %v", x, got, want)
		}
	}
	for _, x := range []float64{-1, math.Inf(-1), math.NaN()} {
		if got := Log(x); !math.IsNaN(got) {
			t.Errorf("Log(%v) = %v, want NaN", x, got)
		}
	}
}

func TestPowInt(t *testing.T) {
	for _, b := range []float64{0.9, 0.95, 0.999, 1.0001, -0.5, 2, 0} {
		exact := bigOf(1)
		for n := range 200 {
			w, _ := exact.Float64()
			got := PowInt(b, n)
			if exact.Sign() == 0 {
				if got != 0 {
					t.Fatalf("PowInt(%v, %d) = %v", b, n, got)
				}
			} else if u := ulps(got, exact); u > 1+float64(n)/2 {
				t.Fatalf("PowInt(%v, %d) = %v, want %v: %.2f ulp", b, n, got, w, u)
			}
			exact = new(big.Float).SetPrec(prec).Mul(exact, bigOf(b))
		}
	}
	for _, c := range []struct {
		b    float64
		t    int
		want float64
	}{{2, -3, 0.125}, {3, 0, 1}, {0, 0, 1}, {2, 1023, 0x1p1023}, {2, 1024, math.Inf(1)}, {1, math.MinInt, 1}, {-1, math.MaxInt, -1}, {3, 5, 243}} {
		if got := PowInt(c.b, c.t); got != c.want {
			t.Errorf("PowInt(%v, %d) = %v, want %v", c.b, c.t, got, c.want)
		}
	}
}

func TestInvFreq(t *testing.T) {
	for _, theta := range []float64{1, 500, 1e4, 5e5, 1e6} {
		for _, dim := range []int{2, 8, 10, 64, 128} {
			for i := range dim / 2 {
				y := new(big.Float).Mul(bigLog(theta), bigOf(float64(-2*i)))
				want := bigExp(y.Quo(y, bigOf(float64(dim))))
				if u := ulps(InvFreq(theta, i, dim), want); u > 16 {
					t.Errorf("InvFreq(%v, %d, %d): %.1f ulp", theta, i, dim, u)
				}
			}
		}
	}
	if got := InvFreq(1e4, 0, 128); got != 1 {
		t.Errorf("the first pair turns by %v, want 1", got)
	}
}

// TestMix64 pins the first outputs of splitmix64 from state 0 and 1234567,
// published with its reference implementation.
func TestMix64(t *testing.T) {
	for n, want := range []uint64{0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4, 0x06c45d188009454f} {
		if got := word(0, uint64(n)); got != want {
			t.Errorf("splitmix64 from 0, output %d: %#x, want %#x", n, got, want)
		}
	}
	for n, want := range []uint64{6457827717110365317, 3203168211198807973, 9817491932198370423} {
		if got := word(1234567, uint64(n)); got != want {
			t.Errorf("splitmix64 from 1234567, output %d: %d, want %d", n, got, want)
		}
	}
}

func TestNormalMoments(t *testing.T) {
	const n = 100000
	var s [5]float64
	for i := range uint64(n) {
		x := Normal(7, 9, i)
		if math.Abs(x) >= 4.9 {
			t.Fatalf("element %d is %v", i, x)
		}
		for k, p := 0, 1.0; k < 5; k, p = k+1, p*x {
			s[k] += p / n
		}
	}
	// Four standard errors of n draws.
	for k, want := range map[int]float64{1: 0, 2: 1, 3: 0, 4: 2.85} {
		spread := map[int]float64{1: 1, 2: math.Sqrt(1.85), 3: 3.6, 4: 8.5}[k]
		if tol := 4 * spread / math.Sqrt(n); math.Abs(s[k]-want) > tol {
			t.Errorf("moment %d is %v, want %v within %v", k, s[k], want, tol)
		}
	}
}

// TestNormalScale: the constant is 1/sqrt(2863311530) rounded once.
func TestNormalScale(t *testing.T) {
	want, _ := new(big.Float).Quo(bigOf(1), new(big.Float).Sqrt(bigOf(8*float64(1<<32-1)/12))).Float64()
	if normalScale != want {
		t.Errorf("normalScale is %x, want %x", float64(normalScale), want)
	}
	if extreme := float64(normalMean) * normalScale; extreme >= 4.9 {
		t.Errorf("the largest value is %v", extreme)
	}
}

// TestCountersSeparate: another seed, tensor or index, or the other
// distribution, gives other words: no collisions over a grid of neighbours.
func TestCountersSeparate(t *testing.T) {
	seen := map[uint64][4]uint64{}
	add := func(w uint64, at [4]uint64) {
		if other, ok := seen[w]; ok {
			t.Fatalf("%v and %v draw the same word", other, at)
		}
		seen[w] = at
	}
	for seed := range uint64(6) {
		for id := range uint64(20) {
			for i := range uint64(100) {
				add(word(stream(seed, id), i), [4]uint64{0, seed, id, i})
				add(word(stream(seed^uniformDomain, id), i), [4]uint64{1, seed, id, i})
			}
		}
	}
}

func TestUniform(t *testing.T) {
	const n, cells = 64000, 64
	var count [cells]float64
	for i := range uint64(n) {
		x := Uniform(3, 5, i)
		if !(x >= 0 && x < 1) || x*0x1p53 != math.Floor(x*0x1p53) {
			t.Fatalf("element %d is %v", i, x)
		}
		count[int(x*cells)]++
	}
	chi := 0.0
	for _, c := range count {
		chi += (c - n/cells) * (c - n/cells) / (n / cells)
	}
	if chi < 25 || chi > 120 { // 63 degrees of freedom: 63 +- 5 standard deviations
		t.Errorf("chi-square of %d cells is %v", cells, chi)
	}
}

// fingerprint is the sha256 of the bits of n values.
func fingerprint(n int, f func(i int) float64) string {
	h := sha256.New()
	var b [8]byte
	for i := range n {
		binary.LittleEndian.PutUint64(b[:], math.Float64bits(f(i)))
		h.Write(b[:])
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// TestPinnedTables: these bits are part of the canonical arithmetic, on every
// architecture and at every GOAMD64 level. They never change within a version.
func TestPinnedTables(t *testing.T) {
	const dim, length = 128, 4096
	rope := func(theta float64, f func(float64) float64) func(int) float64 {
		var freq [dim / 2]float64
		for i := range freq {
			freq[i] = InvFreq(theta, i, dim)
		}
		return func(i int) float64 { return f(float64(i/(dim/2)) * freq[i%(dim/2)]) }
	}
	for _, c := range []struct {
		name string
		n    int
		f    func(int) float64
		want string
	}{
		{"RoPE cos, theta 1e4", length * dim / 2, rope(1e4, Cos), "c74613f2d049985a79e1731ff832b6de"},
		{"RoPE sin, theta 1e4", length * dim / 2, rope(1e4, Sin), "88b0dbaca3eaccb2e090875f017fcea1"},
		{"RoPE cos, theta 1e6", length * dim / 2, rope(1e6, Cos), "374cd45021eba5d5872542da6838065a"},
		{"RoPE sin, theta 1e6", length * dim / 2, rope(1e6, Sin), "8c119b60fd9a21d035b8acbd5ec8f1c1"},
		{"cosine schedule", 10000, func(i int) float64 {
			return float64(0.5 * (1 + Cos(float64(math.Pi*float64(i))/10000)))
		}, "4bbd25ebc429b57f9f31a68b24e70ffd"},
		{"exponentials", 10000, func(i int) float64 { return Exp(float64(i-5000) / 8) }, "5adedd957bafca5d7ee2c3b9b2c789a1"},
		{"logarithms", 10000, func(i int) float64 { return Log(float64(i+1) / 64) }, "78ede0d888802e12ff1344fd1c79c59d"},
		{"bias corrections", 10000, func(i int) float64 { return 1 - PowInt(0.999, i) }, "e7bb2e121872854bc4f036c001c91c74"},
		{"normals", 100000, func(i int) float64 { return Normal(42, 0xcbf29ce484222325, uint64(i)) }, "11abc86c5c58e3ccce03c8485d552117"},
		{"uniforms", 10000, func(i int) float64 { return Uniform(42, 0xcbf29ce484222325, uint64(i)) }, "effed4781fee556eac640f55b01b7b93"},
	} {
		if got := fingerprint(c.n, c.f); got != c.want {
			t.Errorf("%s: fingerprint %s, want %s", c.name, got, c.want)
		}
	}
}
