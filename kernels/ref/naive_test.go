package ref_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// The definitions of package kernels, transcribed once more without any thought
// of speed: every sum collects its leaves first and is folded afterwards.

// naiveTree is tree() as its definition has it, doubling distances in place.
func naiveTree(x []float32) float32 {
	if len(x) == 0 {
		return 0
	}
	x = append([]float32(nil), x...)
	for d := 1; d < len(x); d *= 2 {
		for i := 0; i+d < len(x); i += 2 * d {
			x[i] = x[i] + x[i+d]
		}
	}
	return x[0]
}

// naiveChain is chain() from c over products.
func naiveChain(c float32, n int, a, b func(int) float32) float32 {
	for k := range n {
		c = ref.FMA32(a(k), b(k), c)
	}
	return c
}

// naiveLanes is lanes() with one pass per lane.
func naiveLanes(n int, step func(i int, acc float32) float32) float32 {
	var l [64]float32
	for lane := range 32 {
		for i := lane; i < n; i += 32 {
			l[lane] = step(i, l[lane])
		}
	}
	for d := 16; d >= 1; d /= 2 {
		for i := range d {
			l[i] = l[i] + l[i+d]
		}
	}
	return l[0]
}

func naiveLanesDot(a, b []float32) float32 {
	return naiveLanes(len(a), func(i int, acc float32) float32 { return ref.FMA32(a[i], b[i], acc) })
}

func naiveLanesSum(a []float32) float32 {
	return naiveLanes(len(a), func(i int, acc float32) float32 { return acc + a[i] })
}

// desk is a backend with the helpers of a test.
type desk struct {
	*ref.Backend[float32]
	t *testing.T
	r *rand.Rand
}

func newDesk(t *testing.T) *desk {
	return &desk{ref.New[float32](), t, rand.New(rand.NewPCG(7, 11))}
}

// values draws n numbers of several magnitudes, every ninth a zero, signs mixed.
func (d *desk) values(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(d.r.NormFloat64() * math.Ldexp(1, d.r.IntN(5)-2))
		if d.r.IntN(9) == 0 {
			x[i] = []float32{0, minusZ}[d.r.IntN(2)]
		}
	}
	return x
}

// put is a new contiguous tensor that holds x.
func (d *desk) put(rows, cols int, x []float32) kernels.Tensor {
	d.t.Helper()
	buf, err := d.Alloc(rows * cols)
	if err != nil {
		d.t.Fatal(err)
	}
	t := kernels.Tensor{Buf: buf, Rows: rows, Cols: cols, Stride: cols}
	d.Write(t, x)
	return t
}

// random is put of values.
func (d *desk) random(rows, cols int) (kernels.Tensor, []float32) {
	x := d.values(rows * cols)
	return d.put(rows, cols, x), x
}

// dirty is a tensor full of NaN, for outputs that must be written whole.
func (d *desk) dirty(rows, cols int) kernels.Tensor {
	t := d.put(rows, cols, make([]float32, rows*cols))
	d.Fill(t, math.NaN())
	return t
}

// want compares t with x, bit by bit.
func (d *desk) want(what string, t kernels.Tensor, x []float32) {
	d.t.Helper()
	got := ref.Data[float32](t)
	if len(got) != len(x) {
		d.t.Fatalf("%s: %d elements, want %d", what, len(got), len(x))
	}
	for i := range x {
		if kernels.Bits(got[i]) != kernels.Bits(x[i]) {
			d.t.Fatalf("%s: element %d is %x, want %x", what, i, got[i], x[i])
		}
	}
}
