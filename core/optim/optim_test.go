package optim

import (
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-ml/lockstep/core/num"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// bench is an optimizer with its buffers: weights, gradient, moments.
type bench struct {
	opt     Optimizer
	be      kernels.Backend
	w, g    kernels.Tensor
	moments []kernels.Tensor
}

func newBench(t *testing.T, be kernels.Backend, c Config, n int) *bench {
	t.Helper()
	o, err := New(valid(t, c))
	if err != nil {
		t.Fatal(err)
	}
	tensor := func() kernels.Tensor {
		b, err := be.Alloc(n)
		if err != nil {
			t.Fatal(err)
		}
		return kernels.Flat(b)
	}
	b := &bench{opt: o, be: be, w: tensor(), g: tensor()}
	for range o.Moments() {
		b.moments = append(b.moments, tensor())
	}
	be.WriteWide(b.w, normals(1, n))
	return b
}

// normals are n normal numbers of a stream.
func normals(stream uint64, n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = num.Normal(42, stream, uint64(i))
	}
	return x
}

// step updates the elements between bounds, range by range.
func (b *bench) step(bounds []int, decays bool, s Step) {
	n := b.w.Len()
	b.be.WriteWide(b.g, normals(uint64(100+s.T), n))
	for i := range len(bounds) - 1 {
		lo, hi := bounds[i], bounds[i+1]
		m := make([]kernels.Tensor, len(b.moments))
		for j := range m {
			m[j] = b.moments[j].Range(lo, hi)
		}
		b.opt.Update(b.be, b.w.Range(lo, hi), b.g.Range(lo, hi), m, decays, s)
	}
}

// textbook is one element's update in plain float64: Algorithm 2 of Loshchilov
// and Hutter (decoupled decay), and SGD with momentum as PyTorch has it
// (coupled decay, dampening 0).
type textbook struct {
	c          Config
	w, m, v    float64
	pow1, pow2 float64 // beta^t
}

func (x *textbook) step(g, decay float64, s Step) {
	g *= s.Coef
	if x.c.Name == "sgd" {
		g += float64(decay * x.w)
		x.m = float64(x.c.Momentum*x.m) + g
		x.w -= float64(s.LR * x.m)
		return
	}
	x.pow1, x.pow2 = x.pow1*x.c.Beta1, x.pow2*x.c.Beta2
	x.m = float64(x.c.Beta1*x.m) + float64((1-x.c.Beta1)*g)
	x.v = float64(x.c.Beta2*x.v) + float64((1-x.c.Beta2)*g*g)
	mh, vh := x.m/(1-x.pow1), x.v/(1-x.pow2)
	x.w = x.w - float64(s.LR*decay*x.w) - s.LR*mh/(math.Sqrt(vh)+x.c.Eps)
}

func TestUpdateIsTheTextbooks(t *testing.T) {
	const n, steps = 37, 12
	for _, c := range []Config{
		{Name: "adamw", LR: 0.05, Decay: 0.3}, {Name: "adamw", LR: 0.05, Decay: -1}, {Name: "adamw", LR: 0.01, Eps: 0.5, Beta1: 0.5, Beta2: 0.75},
		{Name: "sgd", LR: 0.05, Decay: 0.3}, {Name: "sgd", LR: 0.05, Momentum: 0.5},
	} {
		for _, decays := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s eps=%v decay=%v decays=%v", c.Name, c.Eps, c.Decay, decays), func(t *testing.T) {
				b := newBench(t, ref.New[float64](), c, n)
				x := make([]textbook, n)
				for i := range x {
					x[i] = textbook{c: valid(t, c), w: num.Normal(42, 1, uint64(i)), pow1: 1, pow2: 1}
				}
				for s := range steps {
					st := Step{T: s, LR: c.LR / float64(s+1), Coef: 1 / float64(1+s%3)}
					b.step([]int{0, n}, decays, st)
					for i, g := range normals(uint64(100+s), n) {
						decay := 0.0
						if decays {
							decay = max(x[i].c.Decay, 0)
						}
						x[i].step(g, decay, st)
					}
				}
				checkTextbook(t, b, x)
			})
		}
	}
}

// checkTextbook allows what 12 steps of about 20 roundings each can do to
// numbers below 16 (weights and momentum of normal numbers), where 1-beta^t has
// lost a factor 1/(1-beta2) = 20 of its precision: below 16*12*40*2^-53 = 1e-12.
func checkTextbook(t *testing.T, b *bench, x []textbook) {
	t.Helper()
	const allowed = 1e-12
	read := func(x kernels.Tensor) []float64 {
		out := make([]float64, x.Len())
		if err := b.be.ReadWide(out, x); err != nil {
			t.Fatal(err)
		}
		return out
	}
	w, m := read(b.w), read(b.moments[0])
	for i := range x {
		if math.Abs(w[i]-x[i].w) > allowed || math.Abs(m[i]-x[i].m) > allowed {
			t.Fatalf("element %d: weight %v and first moment %v, want %v and %v", i, w[i], m[i], x[i].w, x[i].m)
		}
	}
	if len(b.moments) < 2 {
		return
	}
	for i, v := range read(b.moments[1]) {
		if math.Abs(v-x[i].v) > allowed {
			t.Fatalf("element %d: second moment %v, want %v", i, v, x[i].v)
		}
	}
}

func TestAnyCutGivesTheSameBits(t *testing.T) {
	const n = 70
	for _, name := range []string{"adamw", "sgd"} {
		c := Config{Name: name, LR: 0.1}
		whole := newBench(t, ref.New[float32](), c, n)
		for s := range 4 {
			whole.step([]int{0, n}, true, Step{T: s, LR: 0.1, Coef: 0.7})
		}
		for _, bounds := range [][]int{{0, 0, 1, 1, 33, 34, n, n}, {0, 32, 64, n}, {0, 69, n}} {
			parts := newBench(t, ref.New[float32](), c, n)
			for s := range 4 {
				parts.step(bounds, true, Step{T: s, LR: 0.1, Coef: 0.7})
			}
			for i, x := range append([]kernels.Tensor{whole.w}, whole.moments...) {
				y := append([]kernels.Tensor{parts.w}, parts.moments...)[i]
				if a, b := ref.Data[float32](x), ref.Data[float32](y); !cmp.Equal(a, b) {
					t.Errorf("%s cut at %v: buffer %d differs: %s", name, bounds, i, cmp.Diff(a, b))
				}
			}
		}
	}
}

func TestMomentsAreNamed(t *testing.T) {
	for name, want := range map[string][]string{"adamw": {trace.MomentM, trace.MomentV}, "sgd": {trace.Momentum}} {
		o, err := New(Config{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		if got := o.Moments(); !cmp.Equal(got, want) {
			t.Errorf("%s keeps %v, want %v", name, got, want)
		}
	}
	if _, err := New(Config{Name: "lion"}); err == nil {
		t.Error("an unknown optimizer was made")
	}
}

func TestNorm(t *testing.T) {
	be := ref.New[float32]()
	b, err := be.Alloc(2)
	if err != nil {
		t.Fatal(err)
	}
	x := kernels.Flat(b)
	for _, c := range []struct {
		x    []float32
		want float64
	}{
		{[]float32{0, 0}, 0}, {[]float32{3, -4}, 5}, {[]float32{math.MaxFloat32, 0}, math.MaxFloat32},
		{[]float32{0, float32(math.Inf(-1))}, math.Inf(1)},
	} {
		var s kernels.SquareSum
		be.Write(x, c.x)
		be.SumSquares(&s, x)
		if got := Norm(&s); got != c.want {
			t.Errorf("norm of %v is %v, want %v", c.x, got, c.want)
		}
	}
	var s kernels.SquareSum
	be.Write(x, []float32{float32(math.NaN()), float32(math.Inf(1))})
	be.SumSquares(&s, x)
	if got := Norm(&s); !math.IsNaN(got) {
		t.Errorf("norm with a NaN is %v", got)
	}
}
