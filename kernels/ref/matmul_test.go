package ref_test

import (
	"fmt"
	"testing"

	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// matShapes are M, N, K: empty, one, beside the unrolling by four, large enough
// for every level of a tree.
var matShapes = [][3]int{{0, 3, 4}, {3, 0, 4}, {3, 5, 0}, {1, 1, 1}, {2, 3, 5}, {3, 4, 8}, {5, 9, 33}, {4, 8, 16}}

// groupings cut k in several ways, with empty groups among them.
func groupings(k int) [][]int {
	return [][]int{nil, {0, k}, shard.Bounds(k, 2), shard.Bounds(k, 3), shard.Bounds(k, 8), shard.Bounds(k, 11), {0, 0, k, k}}
}

func bounds(groups []int, k int) []int {
	if groups == nil {
		return []int{0, k}
	}
	return groups
}

func TestMatMulNT(t *testing.T) {
	d := newDesk(t)
	for _, s := range matShapes {
		m, n, k := s[0], s[1], s[2]
		for _, groups := range groupings(k) {
			a, x := d.random(m, k)
			b, y := d.random(n, k)
			want := make([]float32, 0, m*n)
			for i := range m {
				for j := range n {
					var leaves []float32
					cut := bounds(groups, k)
					for g, lo := range cut[:len(cut)-1] {
						leaves = append(leaves, naiveChain(0, cut[g+1]-lo,
							func(k0 int) float32 { return x[i*k+lo+k0] }, func(k0 int) float32 { return y[j*k+lo+k0] }))
					}
					want = append(want, naiveTree(leaves))
				}
			}
			c := d.dirty(m, n)
			d.MatMulNT(c, a, b, groups)
			d.want(fmt.Sprint("nt ", s, groups), c, want)
		}
	}
}

func TestMatMulNN(t *testing.T) {
	d := newDesk(t)
	for _, s := range matShapes {
		m, n, k := s[0], s[1], s[2]
		for i, groups := range groupings(k) {
			k2 := k + 3 // the second term is cut into as many groups
			second := groupings(k2)[i]
			a, x := d.random(m, k)
			b, y := d.random(k, n)
			a2, x2 := d.random(m, k2)
			b2, y2 := d.random(k2, n)
			want := make([]float32, 0, m*n)
			for i := range m {
				for j := range n {
					var leaves []float32
					cut, cut2 := bounds(groups, k), bounds(second, k2)
					for g, lo := range cut[:len(cut)-1] {
						acc := naiveChain(0, cut[g+1]-lo,
							func(p int) float32 { return x[i*k+lo+p] }, func(p int) float32 { return y[(lo+p)*n+j] })
						lo = cut2[g]
						leaves = append(leaves, naiveChain(acc, cut2[g+1]-lo,
							func(p int) float32 { return x2[i*k2+lo+p] }, func(p int) float32 { return y2[(lo+p)*n+j] }))
					}
					want = append(want, naiveTree(leaves))
				}
			}
			c := d.dirty(m, n)
			d.MatMulNN(c, []kernels.Term{{A: a, B: b, Groups: groups}, {A: a2, B: b2, Groups: second}})
			d.want(fmt.Sprint("nn ", s, groups), c, want)
		}
	}
}

func TestMatMulTN(t *testing.T) {
	d := newDesk(t)
	for _, s := range matShapes {
		m, n, k := s[0], s[1], s[2]
		a, x := d.random(k, m)
		b, y := d.random(k, n)
		c, z := d.random(m, n)
		for i := range m {
			for j := range n {
				z[i*n+j] = naiveChain(z[i*n+j], k, func(p int) float32 { return x[p*m+i] }, func(p int) float32 { return y[p*n+j] })
			}
		}
		d.MatMulTN(c, a, b)
		d.want(fmt.Sprint("tn ", s), c, z)
	}
}

// TestMatMulCut: cutting the rows of a continued product changes no bit, and a
// strided operand is the same operand.
func TestMatMulCut(t *testing.T) {
	d := newDesk(t)
	a, _ := d.random(7, 5)
	b, _ := d.random(7, 9)
	once, twice := d.put(3, 9, make([]float32, 27)), d.put(3, 9, make([]float32, 27))
	d.MatMulTN(once, a.ColRange(1, 4), b)
	for _, cut := range [][2]int{{0, 2}, {2, 2}, {2, 7}} {
		d.MatMulTN(twice, a.ColRange(1, 4).RowRange(cut[0], cut[1]), b.RowRange(cut[0], cut[1]))
	}
	d.want("cut", twice, ref.Data[float32](once))

	wide := d.dirty(7, 12)
	d.MatMulNT(wide.ColRange(2, 9), b, b, nil)
	tight := d.dirty(7, 7)
	d.MatMulNT(tight, b, b, nil)
	for i := range 7 {
		d.want("strided", wide.ColRange(2, 9).RowRange(i, i+1), ref.Data[float32](tight.RowRange(i, i+1)))
		d.want("left of it", wide.ColRange(0, 2).RowRange(i, i+1), []float32{nan, nan})
		d.want("right of it", wide.ColRange(9, 12).RowRange(i, i+1), []float32{nan, nan, nan})
	}
}

// TestMatMulIntegers: sums of small integers are exact in any order, in both
// element types.
func TestMatMulIntegers(t *testing.T) { testIntegers[float32](t); testIntegers[float64](t) }

func testIntegers[T ref.Float](t *testing.T) {
	const m, n, k = 6, 7, 13
	b := ref.New[T]()
	tensor := func(rows, cols int, f func(i, j int) int) kernels.Tensor {
		buf, err := b.Alloc(rows * cols)
		if err != nil {
			t.Fatal(err)
		}
		x := kernels.Tensor{Buf: buf, Rows: rows, Cols: cols, Stride: cols}
		for i, v := 0, ref.Data[T](x); i < len(v); i++ {
			v[i] = T(f(i/cols, i%cols))
		}
		return x
	}
	f := func(i, k int) int { return 5*i - 3*k + i*k%7 }
	g := func(k, j int) int { return 2*k - 4*j + k*j%5 }
	c := tensor(m, n, func(i, j int) int { return 0 })
	check := func(name string) {
		t.Helper()
		for i := range m {
			for j := range n {
				want := 0
				for p := range k {
					want += f(i, p) * g(p, j)
				}
				if got := ref.Data[T](c)[i*n+j]; got != T(want) {
					t.Fatalf("%s %s: element %d,%d is %v, want %d", b.Name(), name, i, j, got, want)
				}
			}
		}
	}
	flip := func(h func(int, int) int) func(int, int) int { return func(i, j int) int { return h(j, i) } }
	b.MatMulNT(c, tensor(m, k, f), tensor(n, k, flip(g)), shard.Bounds(k, 4))
	check("nt")
	b.MatMulNN(c, []kernels.Term{{A: tensor(m, k, f), B: tensor(k, n, g), Groups: shard.Bounds(k, 4)}})
	check("nn")
	b.Fill(c, 0)
	b.MatMulTN(c, tensor(k, m, flip(f)), tensor(k, n, g))
	check("tn")
}

// TestMatMulTies: in one column at a time the second product lies next to half
// an ulp of the first, where a sum in float64 alone is rounded wrong, so that
// every lane of an unrolled loop must see it.
func TestMatMulTies(t *testing.T) {
	d := newDesk(t)
	const n = 11
	const e = 0x1p-20
	a := d.put(1, 2, []float32{1, 0x1p-24 * (1 + e)})
	for column := range n {
		rows, columns := make([]float32, 2*n), make([]float32, 2*n)
		want := make([]float32, n)
		for j := range n {
			x, y := float32(1+0x1p-23), float32(2)
			if j == column {
				y = 1 - e
			}
			rows[2*j], rows[2*j+1] = x, y
			columns[j], columns[n+j] = x, y
			want[j] = exactFMA(0x1p-24*(1+e), y, x)
		}
		x, y, z := float64(rows[2*column]), float64(rows[2*column+1]), float64(ref.Data[float32](a)[1])
		if twice := float32(x + float64(y*z)); twice == want[column] {
			t.Fatal("the case needs no repair and shows nothing")
		}
		c := d.dirty(1, n)
		d.MatMulNT(c, a, d.put(n, 2, rows), nil)
		d.want(fmt.Sprint("nt, column ", column), c, want)
		d.MatMulNN(c, []kernels.Term{{A: a, B: d.put(2, n, columns)}})
		d.want(fmt.Sprint("nn, column ", column), c, want)
	}
}

// TestLanesTies is the same inside lanes(), one lane at a time: dx[last] gives
// back the sum of d*xh.
func TestLanesTies(t *testing.T) {
	d := newDesk(t)
	const h, e = 128, 0x1p-20
	ones := make([]float32, h)
	for i := range ones {
		ones[i] = 1
	}
	one := d.put(1, h, ones)
	for lane := range 32 {
		x, dy := make([]float32, h), make([]float32, h)
		x[lane], dy[lane] = 1, 1+0x1p-23
		x[lane+32], dy[lane+32] = 1-e, 0x1p-24*(1+e)
		x[h-1] = h
		dx, dw := d.dirty(1, h), d.dirty(1, h)
		d.RMSNormGrad(dx, dw, d.put(1, h, dy), d.put(1, h, x), one.Range(0, 1), one, kernels.Tensor{})
		d.want(fmt.Sprint("lane ", lane), dx.Range(h-1, h), []float32{-exactFMA(1-e, 0x1p-24*(1+e), 1+0x1p-23)})
	}
}
