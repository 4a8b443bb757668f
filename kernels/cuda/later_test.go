//go:build cuda

package cuda

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/gpu"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// opened gives a backend on the first device of the choice that the environment makes.
func opened(t testing.TB) *Backend { return OpenedBy(t, New) }

// OpenedBy is opened, of a backend that somebody else makes.
func OpenedBy(t testing.TB, by func(*gpu.Device) (*Backend, error)) *Backend {
	choice, err := gpu.ParseChoice("", os.Getenv(gpu.Variable))
	if err != nil {
		t.Fatal(err)
	}
	devices, err := gpu.Open(choice)
	if err != nil {
		t.Fatal(err)
	}
	b, err := by(devices[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if err := gpu.Close(devices); err != nil {
			t.Error(err)
		}
	})
	return b
}

// launches counts what a backend has given its stream, by the start of kernels' names.
func launches(b *Backend, prefix string) (n uint64) {
	for _, r := range b.Tally() {
		if strings.HasPrefix(r.Name, prefix) {
			n += r.Calls
		}
	}
	return n
}

// twins are a backend and the definition, with one memory of each.
type twins struct {
	both [2]kernels.Backend
	bufs [2]kernels.Buffer
}

func newTwins(t testing.TB, b *Backend, r *rand.Rand, n int) *twins {
	w := &twins{both: [2]kernels.Backend{b, ref.New[float32]()}}
	x := make([]float32, n)
	for i := range x {
		x[i] = r.Float32() - 0.5
	}
	for i, be := range w.both {
		var err error
		if w.bufs[i], err = be.Alloc(n); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { be.Free(w.bufs[i]) })
		be.Write(kernels.Flat(w.bufs[i]), x)
	}
	return w
}

// do calls for the same on both.
func (w *twins) do(f func(be kernels.Backend, at func(view) kernels.Tensor)) {
	for i, be := range w.both {
		f(be, func(v view) kernels.Tensor {
			return kernels.Tensor{Buf: w.bufs[i], Off: v.off, Rows: v.rows, Cols: v.cols, Stride: v.stride}
		})
	}
}

// differs is the first element whose bits differ, -1 for none.
func (w *twins) differs(t testing.TB) int {
	n := w.bufs[0].Len()
	got, want := make([]float32, n), make([]float32, n)
	for i, x := range [][]float32{got, want} {
		if err := w.both[i].Read(x, kernels.Flat(w.bufs[i])); err != nil {
			t.Fatal(err)
		}
	}
	for i := range got {
		if kernels.Bits(got[i]) != kernels.Bits(want[i]) {
			return i
		}
	}
	return -1
}

// view is a tensor of either memory.
type view struct{ off, rows, cols, stride int }

func (v view) end() int             { return v.off + max(v.rows-1, 0)*v.stride + v.cols }
func (v view) overlaps(o view) bool { return max(v.off, o.off) < min(v.end(), o.end()) }

// viewIn is a rows x cols view anywhere in n elements, at times strided.
func viewIn(r *rand.Rand, n, rows, cols int) view {
	v := view{rows: rows, cols: cols, stride: cols}
	if r.IntN(3) == 0 {
		v.stride += r.IntN(5)
	}
	v.off = r.IntN(n - v.end() + 1)
	return v
}

// TestProductsTogether: any sequence of products, some of which use what others set, gives
// the bits of the definition, which takes one after the other; and launches are fewer.
func TestProductsTogether(t *testing.T) {
	b := opened(t)
	sequences := 60
	if testing.Short() {
		sequences = 15
	}
	products, before := 0, launches(b, "product_")
	for seed := range sequences {
		r := rand.New(rand.NewPCG(uint64(seed), 2))
		w := newTwins(t, b, r, 6000<<r.IntN(5)) // crowded, or with room
		n := 2 + r.IntN(30)
		for range n {
			products += anyProduct(r, w)
			if r.IntN(8) == 0 {
				between(r, w)
			}
		}
		if at := w.differs(t); at >= 0 {
			t.Fatalf("sequence %d of %d products: element %d differs", seed, n, at)
		}
	}
	launched := launches(b, "product_") - before
	t.Logf("%d products in %d launches", products, launched)
	if b.queue.launched < uint64(products) || 5*launched > uint64(4*products) {
		t.Errorf("%d products were launched in %d launches, want %d in at most four fifths as many", b.queue.launched, launched, products)
	}
}

// anyProduct calls for a product of small matrices; 0 where its output would lie on what it
// reads, which is not allowed.
func anyProduct(r *rand.Rand, w *twins) int {
	size := w.bufs[0].Len()
	m, n, k := 1+r.IntN(40), 1+r.IntN(40), 1+r.IntN(24)
	c := viewIn(r, size, m, n)
	kind := r.IntN(3)
	shapes := [][4]int{{m, k, n, k}, {m, k, k, n}, {k, m, k, n}}[kind]
	var ops []view
	for range 1 + (kind%2)*r.IntN(3) {
		ops = append(ops, viewIn(r, size, shapes[0], shapes[1]), viewIn(r, size, shapes[2], shapes[3]))
	}
	for _, o := range ops {
		if o.overlaps(c) {
			return 0
		}
	}
	var groups []int
	if r.IntN(3) == 0 {
		for g := range 2 + r.IntN(20) {
			groups = append(groups, min(g, k))
		}
		groups = append(groups, k)
	}
	w.do(func(be kernels.Backend, at func(view) kernels.Tensor) {
		switch kind {
		case 0:
			be.MatMulNT(at(c), at(ops[0]), at(ops[1]), groups)
		case 1:
			var terms []kernels.Term
			for i := 0; i < len(ops); i += 2 {
				terms = append(terms, kernels.Term{A: at(ops[i]), B: at(ops[i+1]), Groups: groups})
			}
			be.MatMulNN(at(c), terms)
			clear(terms) // they are the caller's again
		default:
			be.MatMulTN(at(c), at(ops[0]), at(ops[1]))
		}
	})
	clear(groups)
	return 1
}

// between calls for something else, on what products may use.
func between(r *rand.Rand, w *twins) {
	x := viewIn(r, w.bufs[0].Len(), 1+r.IntN(20), 1+r.IntN(20))
	x.stride = x.cols
	part, kind := make([]float32, x.rows*x.cols), r.IntN(4)
	w.do(func(be kernels.Backend, at func(view) kernels.Tensor) {
		switch kind {
		case 0:
			be.Scale(at(x), at(x), 0.75)
		case 1:
			be.Write(at(x), part)
		case 2:
			_ = be.Read(part, at(x)) // the last comparison has its error
			be.Write(at(x), part)
		default:
			be.Fill(at(x), 0.25)
		}
	})
}

// TestLaunchesOfProducts: products of one kind that follow one another are one launch, and
// one that depends on another is a launch after it.
func TestLaunchesOfProducts(t *testing.T) {
	b := opened(t)
	const n = 24
	buf, err := b.Alloc(40 * n * n)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Free(buf)
	at := func(i int) kernels.Tensor { return kernels.Flat(buf).Range(i*n*n, (i+1)*n*n).As(n, n) }
	nt := func(c, x, y int) { b.MatMulNT(at(c), at(x), at(y), nil) }
	tn := func(c, x, y int) { b.MatMulTN(at(c), at(x), at(y)) }
	nn := func(c, x, y int) { b.MatMulNN(at(c), []kernels.Term{{A: at(x), B: at(y)}}) }
	for _, c := range []struct {
		what string
		want uint64
		do   func()
	}{
		{"q, k, v", 1, func() { nt(0, 9, 10); nt(1, 9, 11); nt(2, 9, 12) }},
		{"gradients of weights", 1, func() { tn(0, 9, 10); tn(1, 11, 10); tn(2, 12, 10) }},
		{"two kinds in turn", 2, func() { tn(0, 9, 10); nn(1, 9, 11); tn(2, 12, 10); nn(3, 12, 11) }},
		{"one reads what another sets", 2, func() { nt(0, 9, 10); nt(1, 0, 11) }},
		{"one reads what another sets, as B", 2, func() { nt(0, 9, 10); nt(1, 11, 0) }},
		{"one sets what another reads", 2, func() { nt(0, 9, 10); nt(9, 11, 12) }},
		{"both set the same", 2, func() { nt(0, 9, 10); nt(0, 11, 12) }},
		{"one continues another", 2, func() { tn(0, 9, 10); tn(0, 11, 12) }},
		{"more than wait at most", 2, func() {
			for i := range mostLater + 1 {
				row := func(t kernels.Tensor) kernels.Tensor { return t.RowRange(i%n, i%n+1) }
				b.MatMulNT(row(at(i/n)), row(at(9)), at(10), nil)
			}
		}},
		{"a sum of squares between", 2, func() { nt(0, 9, 10); b.SumSquares(new(kernels.SquareSum), at(5)); nt(1, 9, 11) }},
		{"an allocation between", 2, func() {
			nt(0, 9, 10)
			x, err := b.Alloc(1)
			if err != nil {
				t.Fatal(err)
			}
			nt(1, 9, 11)
			b.Free(x)
		}},
	} {
		before := launches(b, "product_")
		c.do()
		if err := b.Sync(); err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		if got := launches(b, "product_") - before; got != c.want {
			t.Errorf("%s: %d launches, want %d", c.what, got, c.want)
		}
	}
}

// TestFaultOfAProduct: what a launch breaks down at names its products.
func TestFaultOfAProduct(t *testing.T) {
	if got, want := namesOf([]product{
		{method: "MatMulNT", c: kernels.Tensor{Rows: 3, Cols: 4}, k: 5},
		{method: "MatMulNT", c: kernels.Tensor{Rows: 3, Cols: 4}, k: 5},
		{method: "MatMulNN", c: kernels.Tensor{Rows: 2, Cols: 1}, terms: []kernels.Term{{A: kernels.Tensor{Cols: 7}}}},
	}), "MatMulNT 3x4, K 5; MatMulNN 2x1, K 7"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	defer func() {
		if got := fmt.Sprint(recover()); !strings.Contains(got, "MatMulNT: 8589934592 is beyond") {
			t.Error(got)
		}
	}()
	new(Backend).later("MatMulNT", kernels.Tensor{Rows: 1 << 33}, 1)
}

// TestTileOfMany: what is together is cut as it needs together, to the same bits.
func TestTileOfMany(t *testing.T) {
	b, r := opened(t), rand.New(rand.NewPCG(3, 4))
	w := newTwins(t, b, r, 200_000)
	const m, n, k = 190, 140, 20
	for _, c := range []struct {
		tile     string
		together int
	}{{"_128x64", 1}, {"_128x128", 3}} {
		name := "product_nt" + c.tile
		before := launches(b, name)
		w.do(func(be kernels.Backend, at func(view) kernels.Tensor) {
			for i := range c.together {
				from := i * (m*n + m*k + n*k)
				x, y := view{from + m*n, m, k, k}, view{from + m*n + m*k, n, k, k}
				be.MatMulNT(at(view{from, m, n, n}), at(x), at(y), nil)
			}
		})
		if at := w.differs(t); at >= 0 {
			t.Errorf("%d together: element %d differs", c.together, at)
		}
		if got := launches(b, name) - before; got != 1 {
			t.Errorf("%d together: %d launches of %s, want 1", c.together, got, name)
		}
	}
}
