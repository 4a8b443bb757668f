package bound_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/bound"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

var _ kernels.Backend = (*bound.Backend)(nil)

// plant is a set of input values, each with a bound on its error.
type plant struct{ x, e [][]float64 }

// inputs draws the operands of a case: magnitudes spread by scale, errors up to
// rel of them.
func (c *kernelCase) inputs(r *rand.Rand, scale, rel float64) plant {
	var p plant
	for _, s := range c.operands {
		x, e := make([]float64, s.rows*s.cols), make([]float64, s.rows*s.cols)
		for i := range x {
			switch s.kind {
			case signed:
				x[i] = r.NormFloat64() * scale
			case positive, exact:
				x[i] = (0.05 + r.Float64()) * 0.9
			case zero:
				continue
			}
			x[i] = float64(float32(x[i]))
			if s.kind != exact {
				e[i] = rel * r.Float64() * math.Abs(x[i])
			}
		}
		p.x, p.e = append(p.x, x), append(p.e, e)
	}
	return p
}

// moved is p with every element moved by about its error, up or down, to a
// float32.
func (p plant) moved(r *rand.Rand) [][]float64 {
	var out [][]float64
	for k, x := range p.x {
		y := slices.Clone(x)
		for i := range y {
			v := float64(float32(x[i] + float64(2*r.IntN(2)-1)*0.99*p.e[k][i]))
			if math.Abs(v-x[i]) <= p.e[k][i] {
				y[i] = v
			}
		}
		out = append(out, y)
	}
	return out
}

// run gives the operands to backend k, with bounds where it knows them, and runs
// the case's kernel.
func (c *kernelCase) run(t *testing.T, k kernels.Backend, x, e [][]float64) []kernels.Tensor {
	t.Helper()
	ts := make([]kernels.Tensor, len(x))
	for i, s := range c.operands {
		buf, err := k.Alloc(s.rows * s.cols)
		if err != nil {
			t.Fatal(err)
		}
		ts[i] = kernels.Flat(buf).As(s.rows, s.cols)
		k.WriteWide(ts[i], x[i])
		if b, ok := k.(*bound.Backend); ok && e != nil {
			b.Widen(ts[i], e[i])
		}
	}
	c.call(k, ts)
	return ts
}

func read(t *testing.T, k kernels.Backend, x kernels.Tensor) []float64 {
	t.Helper()
	out := make([]float64, x.Len())
	if err := k.ReadWide(out, x); err != nil {
		t.Fatal(err)
	}
	return out
}

func newRand(c *kernelCase, n uint64) *rand.Rand {
	return rand.New(rand.NewPCG(kernels.TensorID(c.name), n))
}

// TestHolds: whatever lies within the bounds of the inputs gives results within
// the bounds of the outputs, and the exact values are those of the float64
// instance. With exact inputs the bounds are not absurdly wide.
func TestHolds(t *testing.T) {
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			var ratios []float64
			for n, in := range []struct{ scale, rel float64 }{{1, 0}, {1, 1e-7}, {1, 1e-5}, {1, 1e-2}, {1e-22, 1e-6}, {3, 1e-6}, {0.1, 0}} {
				for trial := range 3 {
					r := newRand(&c, uint64(10*n+trial))
					p := c.inputs(r, in.scale, in.rel)
					ratio := c.holds(t, p, p.moved(r))
					if in.rel == 0 {
						ratios = append(ratios, ratio...)
					}
				}
			}
			if len(ratios) == 0 {
				return // exact results
			}
			slices.Sort(ratios)
			mid, top := ratios[len(ratios)/2], ratios[len(ratios)-1]
			t.Logf("observed/bound of %d elements with exact inputs: median %.2g, largest %.2g", len(ratios), mid, top)
			if mid < 1e-3 {
				t.Errorf("median observed/bound %.2g: the bound says nothing", mid)
			}
		})
	}
}

// holds compares float32 results of the moved inputs with the bounds and gives
// observed/bound where the bound is not 0.
func (c *kernelCase) holds(t *testing.T, p plant, moved [][]float64) []float64 {
	t.Helper()
	b, single, double := bound.New(), ref.New[float32](), ref.New[float64]()
	ts, got, want := c.run(t, b, p.x, p.e), c.run(t, single, moved, nil), c.run(t, double, p.x, nil)
	var ratios []float64
	for _, o := range c.results {
		exact, e, y, w := b.Exact(ts[o]), b.Bounds(ts[o]), read(t, single, got[o]), read(t, double, want[o])
		for i := range e {
			if exact[i] != w[i] {
				t.Fatalf("result %d element %d: exact %v, float64 instance %v", o, i, exact[i], w[i])
			}
			d := math.Abs(y[i] - exact[i])
			if !(d <= e[i]) || math.IsInf(e[i], 0) {
				t.Fatalf("result %d element %d: %v is %v from %v, the bound is %v", o, i, y[i], d, exact[i], e[i])
			}
			if e[i] > 0 {
				ratios = append(ratios, d/e[i])
			}
		}
	}
	return ratios
}

// TestValuesAreCanonical: the float32 values are those of the reference.
func TestValuesAreCanonical(t *testing.T) {
	for _, c := range cases() {
		p := c.inputs(newRand(&c, 1), 1, 0)
		b, single := bound.New(), ref.New[float32]()
		ts, want := c.run(t, b, p.x, p.e), c.run(t, single, p.x, nil)
		for _, o := range c.results {
			x, y := read(t, b, ts[o]), read(t, single, want[o])
			for i := range x {
				if math.Float64bits(x[i]) != math.Float64bits(y[i]) {
					t.Fatalf("%s: result %d element %d: %v, want %v", c.name, o, i, x[i], y[i])
				}
			}
		}
	}
}

// TestGrows: larger errors of the inputs never give smaller bounds, and
// somewhere give larger ones.
func TestGrows(t *testing.T) {
	for _, c := range cases() {
		p := c.inputs(newRand(&c, 2), 1, 1e-4)
		before := c.bounds(t, p)
		grew := !c.depends()
		for k := range p.e {
			for i := range p.e[k] {
				p.e[k][i] *= 2
			}
		}
		after := c.bounds(t, p)
		for i := range before {
			if after[i] < before[i] {
				t.Fatalf("%s: element %d: bound %v with doubled errors, %v before", c.name, i, after[i], before[i])
			}
			grew = grew || after[i] > before[i]
		}
		if !grew {
			t.Errorf("%s: no bound grew", c.name)
		}
	}
}

// depends reports whether any input has elements that may be off.
func (c *kernelCase) depends() bool {
	return slices.ContainsFunc(c.operands, func(s operand) bool { return s.kind != zero && s.rows*s.cols > 0 })
}

// bounds are those of all results.
func (c *kernelCase) bounds(t *testing.T, p plant) (e []float64) {
	t.Helper()
	b := bound.New()
	ts := c.run(t, b, p.x, p.e)
	for _, o := range c.results {
		e = append(e, b.Bounds(ts[o])...)
	}
	return e
}

// TestMutantIsOutside: of every result that is not all zeros some element,
// changed by 500 ulp, leaves its bound.
func TestMutantIsOutside(t *testing.T) {
	for _, c := range cases() {
		p := c.inputs(newRand(&c, 3), 1, 0)
		b := bound.New()
		ts := c.run(t, b, p.x, p.e)
		for _, o := range c.results {
			x, exact, e := read(t, b, ts[o]), b.Exact(ts[o]), b.Bounds(ts[o])
			outside := !slices.ContainsFunc(x, func(v float64) bool { return v != 0 })
			for i := range x {
				mutant := x[i] * (1 + 500*0x1p-23)
				outside = outside || math.Abs(mutant-exact[i]) > e[i]
			}
			if !outside {
				t.Errorf("%s: result %d: no element leaves its bound", c.name, o)
			}
		}
	}
}

// TestSumsAlone: with NewSums what is computed per token is exact as it is, and
// sums over tokens have bounds that hold for exact inputs.
func TestSumsAlone(t *testing.T) {
	sums := map[string][]int{"Fill": {0}, "Add": {0}, "Scale": {1}, "ColumnSum": {0}, "Reduce sum": {0, 1}, "MatMulTN": {2},
		"RMSNormGrad": {1}, "RMSNormGrad in place": {1}, "EmbeddingGrad": {0}}
	for _, c := range cases() {
		p := c.inputs(newRand(&c, 4), 1, 0)
		b := bound.NewSums()
		ts := c.run(t, b, p.x, nil)
		for _, o := range c.results {
			x, exact, e := read(t, b, ts[o]), b.Exact(ts[o]), b.Bounds(ts[o])
			summed := slices.Contains(sums[c.name], o)
			for i := range x {
				if d := math.Abs(x[i] - exact[i]); d > e[i] || !summed && e[i] != 0 {
					t.Fatalf("%s: result %d element %d: %v from the exact value, the bound is %v", c.name, o, i, d, e[i])
				}
			}
			if summed && slices.Max(e) == 0 {
				t.Errorf("%s: result %d, a sum over tokens, has no bound", c.name, o)
			}
		}
	}
}

// TestAnyOrder: with the summands in another order the float32 results stay
// within the bounds of the first order.
func TestAnyOrder(t *testing.T) {
	const m, n, k = 5, 4, 45
	for trial := range uint64(20) {
		r := rand.New(rand.NewPCG(trial, 5))
		draw := func(rows int) []float64 {
			x := make([]float64, rows*k)
			for i := range x {
				x[i] = float64(float32(r.NormFloat64()))
			}
			return x
		}
		x, y := draw(m), draw(n)
		perm := r.Perm(k)
		shuffled := func(x []float64) []float64 {
			out := make([]float64, len(x))
			for i := range x {
				out[i] = x[i/k*k+perm[i%k]]
			}
			return out
		}
		c := kernelCase{operands: []operand{{m, k, signed}, {n, k, signed}, {m, n, zero}}, results: []int{2},
			call: func(k kernels.Kernels, t []kernels.Tensor) { k.MatMulNT(t[2], t[0], t[1], []int{0, 10, 10, 45}) }}
		none := make([]float64, m*n)
		b, single := bound.New(), ref.New[float32]()
		ts, got := c.run(t, b, [][]float64{x, y, none}, nil), c.run(t, single, [][]float64{shuffled(x), shuffled(y), none}, nil)
		e, exact := b.Bounds(ts[2]), b.Exact(ts[2])
		for i, v := range read(t, single, got[2]) {
			if d := math.Abs(v - exact[i]); d > e[i] {
				t.Fatalf("trial %d element %d: %v from the exact value, the bound is %v", trial, i, d, e[i])
			}
		}
	}
}
