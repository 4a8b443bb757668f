//go:build sim

package sim_test

import (
	"math"
	"math/rand/v2"
	"testing"
)

// random gives floats from -1 to 1.
func random(n int, seed uint64) []float32 {
	g := rand.New(rand.NewPCG(seed, 1))
	v := make([]float32, n)
	for i := range v {
		v[i] = g.Float32()*2 - 1
	}
	return v
}

func TestVectorAdd(t *testing.T) {
	r := start(t, 0)
	f := r.function(r.module(ptx(t, "correct")), "vecadd")
	for _, n := range []int{0, 1, 31, 32, 33, 1000} {
		a, b := random(n, 1), random(n, 2)
		c := r.alloc(4*n + 4)
		if e := r.run(f, dim{n/64 + 1}, dim{64}, 0, r.upload(floats(a...)), r.upload(floats(b...)), c, n); e != success {
			t.Fatalf("%d: error %d: %s", n, e, findings())
		}
		if n == 0 {
			continue
		}
		for i, v := range toFloats(r.download(c, 4*n)) {
			if v != a[i]+b[i] {
				t.Fatalf("%d: %g + %g = %g", i, a[i], b[i], v)
			}
		}
	}
	r.clean()
}

func TestTiledProduct(t *testing.T) {
	r := start(t, 1)
	f := r.function(r.module(ptx(t, "correct")), "matmul")
	for _, s := range [][3]int{{1, 1, 1}, {16, 16, 16}, {33, 17, 50}, {64, 64, 64}} {
		m, n, k := s[0], s[1], s[2]
		a, b := random(m*k, 3), random(k*n, 4)
		c := r.alloc(4 * m * n)
		if e := r.run(f, dim{(n + 15) / 16, (m + 15) / 16}, dim{16, 16}, 0, r.upload(floats(a...)), r.upload(floats(b...)), c, m, n, k); e != success {
			t.Fatalf("error %d: %s", e, findings())
		}
		got := toFloats(r.download(c, 4*m*n))
		for i := range m {
			for j := range n {
				var want float32
				for x := range k {
					want = fma32(a[i*k+x], b[x*n+j], want)
				}
				if got[i*n+j] != want {
					t.Fatalf("%v: c[%d][%d] = %g, want %g", s, i, j, got[i*n+j], want)
				}
			}
		}
	}
	r.clean()
}

// fma32 is correctly rounded: the product is exact in float64, and the error of the sum
// says which way a tie goes.
func fma32(a, b, c float32) float32 {
	p, q := float64(a)*float64(b), float64(c)
	s := p + q
	bb := s - p
	e := (p - (s - bb)) + (q - bb)
	// Round to odd: then the second rounding cannot go wrong.
	if e != 0 && !math.IsInf(s, 0) && math.Float64bits(s)&1 == 0 {
		if (e > 0) == (s > 0) {
			s = math.Float64frombits(math.Float64bits(s) + 1)
		} else {
			s = math.Float64frombits(math.Float64bits(s) - 1)
		}
	}
	return float32(s)
}
