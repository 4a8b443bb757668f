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
	if e != 0 && e == e && !math.IsInf(s, 0) && math.Float64bits(s)&1 == 0 {
		if (e > 0) == (s > 0) {
			s = math.Float64frombits(math.Float64bits(s) + 1)
		} else {
			s = math.Float64frombits(math.Float64bits(s) - 1)
		}
	}
	return float32(s)
}

// TestCorrectKernels runs kernels without a fault: what they compute is known, and nothing
// is found in them.
func TestCorrectKernels(t *testing.T) {
	r := start(t, 0)
	m := r.module(ptx(t, "correct"))
	x := make([]uint32, 1024)
	g := rand.New(rand.NewPCG(7, 7))
	for i := range x {
		x[i] = uint32(g.IntN(1000))
	}
	in := r.upload(words(x...))
	check := func(name string, got []uint32, want func(i int) uint32) {
		t.Helper()
		for i, v := range got {
			if w := want(i); v != w {
				t.Fatalf("%s: element %d is %d, want %d", name, i, int32(v), int32(w))
			}
		}
	}
	run := func(name string, grid, block dim, shared int, args ...any) {
		t.Helper()
		if e := r.run(r.function(m, name), grid, block, shared, args...); e != success {
			t.Fatalf("%s: error %d: %s", name, e, findings())
		}
	}

	out := r.alloc(16)
	run("sums", dim{4}, dim{256}, 0, in, out, 0)
	check("sums", toWords(r.download(out, 16)), func(b int) (s uint32) {
		for _, v := range x[256*b : 256*b+256] {
			s += v
		}
		return s
	})

	out = r.alloc(256)
	run("by_warps", dim{1}, dim{64}, 0, in, out)
	check("by_warps", toWords(r.download(out, 256)), func(i int) uint32 { return x[i^1] + 2 })

	f := random(1024, 8)
	fin := r.upload(floats(f...))
	out = r.alloc(256)
	run("pipeline", dim{1}, dim{64}, 0, fin, out, 4)
	check("pipeline", toWords(r.download(out, 256)), func(i int) uint32 {
		var a float32
		for k := range 4 {
			for j := range 4 {
				a += f[256*k+(i+64*j)&255]
			}
		}
		return math.Float32bits(a)
	})

	out = r.alloc(256)
	run("ragged", dim{1}, dim{64}, 0, r.upload(floats(f[:61]...)), out, 61)
	check("ragged", toWords(r.download(out, 256)), func(i int) uint32 {
		if i < 3 {
			return 0
		}
		return math.Float32bits(f[63-i])
	})

	out = r.alloc(1024)
	run("readers", dim{4}, dim{64}, 0, in, out, r.alloc(1024))
	check("readers", toWords(r.download(out, 1024)), func(i int) uint32 {
		t := uint32(i % 64)
		a := func(t uint32) uint32 { return x[t^32] + x[t] + 2*(t^32) + 2*t }
		b := func(t uint32) uint32 {
			return 2*(a(t^1)+a(t)) + a(t^1)&255 + a(t)&255
		}
		return 2*b(t) + b(t)&255
	})

	bin := r.upload([]byte("an array of bytes, which several threads write beside each other"))
	bout := r.alloc(61)
	run("bytes", dim{1}, dim{61}, 0, bin, bout)
	for i, v := range r.download(bout, 61) {
		if v != "an array of bytes, which several threads write beside each other"[i]+1 {
			t.Fatalf("bytes: %d", i)
		}
	}

	for _, groups := range []int{1, 2, 3, 7, 13} {
		out = r.alloc(256)
		run("counter", dim{1}, dim{64}, 0, fin, out, groups, 0)
		check("counter", toWords(r.download(out, 256)), func(i int) uint32 {
			var level []float32
			pop := func() float32 { v := level[len(level)-1]; level = level[:len(level)-1]; return v }
			for g := range groups {
				v := f[g*64+i]
				for k := g; k&1 == 1; k >>= 1 {
					v = pop() + v
				}
				level = append(level, v)
			}
			v := pop()
			for len(level) > 0 {
				v = pop() + v
			}
			return math.Float32bits(v)
		})
	}

	out = r.upload(make([]byte, 32))
	run("histogram", dim{5}, dim{96}, 0, in, out, 1024)
	check("histogram", toWords(r.download(out, 32)), func(b int) (n uint32) {
		for _, v := range x {
			if int(v&7) == b {
				n++
			}
		}
		return n
	})

	large := r.function(m, "large")
	const n = 25600
	out = r.alloc(1024)
	r.want(invalidValue, "cuFuncSetAttribute", large, 8, 228<<10)
	if e := r.run(large, dim{1}, dim{256}, 4*n, in, out, n); e != invalidValue {
		t.Errorf("100 KB without asking: error %d", e)
	}
	r.must("cuFuncSetAttribute", large, 8, 4*n)
	run("large", dim{1}, dim{256}, 4*n, in, out, n)
	check("large", toWords(r.download(out, 1024)), func(i int) (s uint32) {
		for k := i; k < n; k += 256 {
			s += x[(n-1-k)&63] + uint32(n-1-k)
		}
		return s
	})

	out = r.alloc(64)
	run("variables", dim{1}, dim{16}, 0, out)
	check("variables", toWords(r.download(out, 64)), func(i int) uint32 {
		return []uint32{3, 1, 4, 1}[i&3] + []uint32{10, 20, 30, 0}[i&3]
	})

	out = r.upload(make([]byte, 400))
	run("steps", dim{1}, dim{100}, 0, out, 90)
	check("steps", toWords(r.download(out, 400)), func(i int) uint32 {
		if i >= 90 {
			return 0
		}
		s, most, v := 0, 0, i+1
		for ; v != 1; s++ {
			if v&1 == 1 {
				v = 3*v + 1
			} else {
				v /= 2
			}
			most = max(most, v)
		}
		return uint32(s*100000 + most)
	})

	out = r.alloc(256)
	run("nested", dim{1}, dim{64}, 0, in, out)
	check("nested", toWords(r.download(out, 256)), func(i int) uint32 {
		warp := func(f func(t int) int) (v [32]int) {
			for t := range v {
				v[t] = f(t)
			}
			return v
		}
		a := warp(func(t int) (v int) {
			for i := range t&3 + 1 {
				for j := range min(int(x[t]%5), 3) {
					v += i*10 + j
				}
			}
			return v
		})
		b := warp(func(t int) int {
			if v := a[t] + a[t^1]; t&4 != 0 {
				return v + 7
			} else {
				return v - 7
			}
		})
		c := warp(func(t int) int {
			if t&4 != 0 {
				return b[t] + b[t^8]
			}
			return b[t] + b[t^16]
		})
		return uint32(c[i&31] + c[31])
	})

	out = r.alloc(256)
	run("halves", dim{1}, dim{128}, 0, in, out)
	check("halves", toWords(r.download(out, 256)), func(i int) uint32 { return x[63-i] * 2 })

	out = r.upload(make([]byte, 256))
	run("leave", dim{1}, dim{64}, 0, in, out)
	check("leave", toWords(r.download(out, 256)), func(i int) uint32 {
		if i&1 == 1 {
			return 0
		}
		return x[i+1]
	})
	r.clean()
}
