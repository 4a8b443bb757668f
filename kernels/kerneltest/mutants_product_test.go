package kerneltest_test

import (
	"testing"

	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/kerneltest"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// product is the matrix products written out plainly, with knobs to turn them
// wrong. right() is the canonical setting.
type product struct {
	kernels.Backend
	fma       func(a, b, c float32) float32
	fold      func([]float32) float32
	descend   bool // k runs downwards
	ungrouped bool // one chain over everything
	pad       int  // chains are zero-padded to a multiple of this
	perTerm   bool // MatMulNN: one chain per term and group
	skipEmpty bool // an empty group is no leaf
	fresh     bool // MatMulTN: sums from +0 and adds c afterwards
}

func right(b kernels.Backend) product {
	return product{Backend: b, fma: ref.FMA32, fold: tree, pad: 1}
}

// chain continues acc over a and b.
func (p product) chain(acc float32, a, b []float32) float32 {
	for i := range a {
		k := i
		if p.descend {
			k = len(a) - 1 - i
		}
		acc = p.fma(a[k], b[k], acc)
	}
	for i := len(a); i%p.pad != 0; i++ {
		acc = p.fma(0, 0, acc)
	}
	return acc
}

// term is one row of A and one column of B, with their groups.
type term struct {
	a, b   []float32
	groups []int
}

// element is one element of c.
func (p product) element(terms []term) float32 {
	var leaves []float32
	for g := range kernels.GroupCount(terms[0].groups) {
		acc, n := float32(0), 0
		for _, t := range terms {
			lo, hi := 0, len(t.a)
			if t.groups != nil && !p.ungrouped {
				lo, hi = t.groups[g], t.groups[g+1]
			}
			if p.perTerm {
				leaves = append(leaves, p.chain(0, t.a[lo:hi], t.b[lo:hi]))
			}
			acc, n = p.chain(acc, t.a[lo:hi], t.b[lo:hi]), n+hi-lo
		}
		if !p.perTerm && !(p.skipEmpty && n == 0) {
			leaves = append(leaves, acc)
		}
		if p.ungrouped {
			break
		}
	}
	if len(leaves) == 0 {
		return 0
	}
	return p.fold(leaves)
}

// rowsOf cuts the elements of t into rows, columnsOf into columns.
func (p product) rowsOf(t kernels.Tensor) [][]float32 {
	x, out := get(p, t), make([][]float32, t.Rows)
	for r := range out {
		out[r] = x[r*t.Cols : (r+1)*t.Cols]
	}
	return out
}

func (p product) columnsOf(t kernels.Tensor) [][]float32 {
	out := make([][]float32, t.Cols)
	for _, row := range p.rowsOf(t) {
		for c, v := range row {
			out[c] = append(out[c], v)
		}
	}
	return out
}

func (p product) MatMulNT(c, a, b kernels.Tensor, groups []int) {
	x, y := p.rowsOf(a), p.rowsOf(b)
	out := make([]float32, 0, c.Len())
	for m := range c.Rows {
		for n := range c.Cols {
			out = append(out, p.element([]term{{x[m], y[n], groups}}))
		}
	}
	put(p, c, out)
}

func (p product) MatMulNN(c kernels.Tensor, terms []kernels.Term) {
	var xs, ys [][][]float32
	for _, t := range terms {
		xs, ys = append(xs, p.rowsOf(t.A)), append(ys, p.columnsOf(t.B))
	}
	out := make([]float32, 0, c.Len())
	for m := range c.Rows {
		for n := range c.Cols {
			var ts []term
			for i, t := range terms {
				ts = append(ts, term{xs[i][m], ys[i][n], t.Groups})
			}
			out = append(out, p.element(ts))
		}
	}
	put(p, c, out)
}

func (p product) MatMulTN(c, a, b kernels.Tensor) {
	x, y, out := p.columnsOf(a), p.columnsOf(b), get(p, c)
	for m := range c.Rows {
		for n := range c.Cols {
			acc := &out[m*c.Cols+n]
			if p.fresh {
				*acc += p.chain(0, x[m], y[n])
				continue
			}
			*acc = p.chain(*acc, x[m], y[n])
		}
	}
	put(p, c, out)
}

// with is the canonical setting changed by f.
func with(b kernels.Backend, f func(*product)) product {
	p := right(b)
	f(&p)
	return p
}

// TestProductControl: with no knob turned, the plain products pass; what the
// mutants fail on is their defect.
func TestProductControl(t *testing.T) {
	var f failures
	kerneltest.Check(&f, right(ref.New[float32]()), kerneltest.Options{Only: []string{"MatMulNT", "MatMulNN", "MatMulTN"}, Level: 1, MaxWork: 30000})
	for _, msg := range f {
		t.Error(msg)
	}
}

type (
	pastEnd     struct{ kernels.Backend }
	dirtyInput  struct{ kernels.Backend }
	denseRows   struct{ kernels.Backend }
	shortColumn struct{ kernels.Backend }
	scaledDirt  struct{ kernels.Backend }
)

func productMutants(b kernels.Backend) []mutant {
	var out []mutant
	for _, part := range []string{"MatMulNT", "MatMulNN", "MatMulTN"} {
		out = append(out,
			mutant{part, "k descending", with(b, func(p *product) { p.descend = true })},
			mutant{part, "multiply, then add", with(b, func(p *product) { p.fma = mulAdd })},
			mutant{part, "fma rounded through float64", with(b, func(p *product) { p.fma = viaFloat64 })},
			mutant{part, "K zero-padded to a multiple of 4", with(b, func(p *product) { p.pad = 4 })},
		)
	}
	for _, part := range []string{"MatMulNT", "MatMulNN"} {
		out = append(out,
			mutant{part, "groups added from the left", with(b, func(p *product) { p.fold = leftFold })},
			mutant{part, "groups ignored", with(b, func(p *product) { p.ungrouped = true })},
			mutant{part, "an empty group is no leaf", with(b, func(p *product) { p.skipEmpty = true })},
		)
	}
	return append(out,
		mutant{"MatMulNN", "a chain of its own for each term", with(b, func(p *product) { p.perTerm = true })},
		mutant{"MatMulTN", "stored value added at the end", with(b, func(p *product) { p.fresh = true })},
		mutant{"MatMulNT", "writes past the end", pastEnd{b}},
		mutant{"MatMulNT", "reads one row too few of B", shortColumn{b}},
		mutant{"MatMulNT", "old output times zero enters", scaledDirt{b}},
		mutant{"MatMulNN", "changes an input", dirtyInput{b}},
		mutant{"MatMulTN", "writes the gaps between rows", denseRows{b}},
	)
}

func (m pastEnd) MatMulNT(c, a, b kernels.Tensor, groups []int) {
	m.Backend.MatMulNT(c, a, b, groups)
	if c.Cols%4 == 3 {
		m.Fill(beyond(c), 0)
	}
}

func (m shortColumn) MatMulNT(c, a, b kernels.Tensor, groups []int) {
	if b.Rows == 17 {
		c, b = c.ColRange(0, 16), b.RowRange(0, 16)
	}
	m.Backend.MatMulNT(c, a, b, groups)
}

func (m scaledDirt) MatMulNT(c, a, b kernels.Tensor, groups []int) {
	old := get(m, c)
	m.Backend.MatMulNT(c, a, b, groups)
	x := get(m, c)
	for i := range x {
		x[i] += float32(0 * old[i])
	}
	put(m, c, x)
}

func (m dirtyInput) MatMulNN(c kernels.Tensor, terms []kernels.Term) {
	m.Backend.MatMulNN(c, terms)
	if a := terms[len(terms)-1].A; a.Cols > 384 {
		m.Fill(last(a), 0)
	}
}

func (m denseRows) MatMulTN(c, a, b kernels.Tensor) {
	m.Backend.MatMulTN(c, a, b)
	for r := range max(c.Rows-1, 0) {
		if c.Stride > c.Cols {
			m.Fill(beyond(c.RowRange(r, r+1)), 0)
		}
	}
}
