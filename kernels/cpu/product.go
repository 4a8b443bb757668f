package cpu

import (
	"unsafe"

	"github.com/lockstep-ml/lockstep/kernels"
)

// layout says how the operands of a product lie.
type layout uint8

const (
	nn layout = iota // a is M x K, b is K x N
	nt               // b is N x K
	tn               // a is K x M
)

// Products beyond these are left to plain Go.
const (
	maxTerms  = 4
	maxGroups = 1 << maxMerges
	maxMerges = 8 // finished sums that one step can add
)

// term is one pair of operands; bounds cut its k into groups, nil is one group.
type term struct {
	a, b   view
	bounds []int
	k      int
}

// group is the k range of group g.
func (t *term) group(g int) (lo, hi int) {
	if t.bounds == nil {
		return 0, t.k
	}
	return t.bounds[g], t.bounds[g+1]
}

// product is C = sum of A*B over terms, or C += A*B for tn.
type product struct {
	layout        layout
	c             view
	term          [maxTerms]term
	terms, groups int
	byRows        bool // parts are ranges of rows, else of columns
	share         int  // rows or columns per part
}

// MatMulNT implements kernels.Kernels.
func (b *Backend) MatMulNT(c, x, w kernels.Tensor, groups []int) {
	if b.isa == nil || len(groups) > maxGroups {
		b.Backend.MatMulNT(c, x, w, groups)
		return
	}
	kernels.CheckMatMulNT(c, x, w, groups)
	job := b.newCall(productPart, pathNTRows, pathNTColumns)
	job.product = product{layout: nt, c: viewOf(c), terms: 1, groups: kernels.GroupCount(groups)}
	job.product.term[0] = term{viewOf(x), viewOf(w), groups, x.Cols}
	b.multiply(job)
}

// MatMulNN implements kernels.Kernels.
func (b *Backend) MatMulNN(c kernels.Tensor, terms []kernels.Term) {
	if b.isa == nil || len(terms) > maxTerms || len(terms) > 0 && len(terms[0].Groups) > maxGroups {
		b.Backend.MatMulNN(c, terms)
		return
	}
	kernels.CheckMatMulNN(c, terms)
	job := b.newCall(productPart, pathNNRows, pathNNColumns)
	job.product = product{layout: nn, c: viewOf(c), terms: len(terms), groups: kernels.GroupCount(terms[0].Groups)}
	for i, t := range terms {
		job.product.term[i] = term{viewOf(t.A), viewOf(t.B), t.Groups, t.A.Cols}
	}
	b.multiply(job)
}

// MatMulTN implements kernels.Kernels.
func (b *Backend) MatMulTN(c, x, y kernels.Tensor) {
	if b.isa == nil {
		b.Backend.MatMulTN(c, x, y)
		return
	}
	kernels.CheckMatMulTN(c, x, y)
	job := b.newCall(productPart, pathTNRows, pathTNColumns)
	job.product = product{layout: tn, c: viewOf(c), terms: 1, groups: 1}
	job.product.term[0] = term{viewOf(x), viewOf(y), nil, x.Rows}
	b.multiply(job)
}

// soloWork is how many multiply-adds one thread does alone: waking another
// costs some microseconds.
const soloWork = 1 << 21

// multiply shares a product out by columns, so that no thread packs what
// another does, or by rows where there are too few columns.
func (b *Backend) multiply(c *call) {
	p := &c.product
	k := 0
	for i := range p.terms {
		k += p.term[i].k
	}
	m, n := p.c.rows, p.c.cols
	if m == 0 || n == 0 || p.layout == tn && k == 0 {
		b.dispatch(c, 0)
		return
	}
	threads := b.threads
	if m*n*k < soloWork {
		threads = 1
	}
	wide, high := b.isa.shape(p.layout, n)
	wide *= b.isa.lanes
	// Parts that are columns pack all of k-major A each; parts that are rows, B.
	p.byRows = n <= m && (p.layout == tn || n < 2*threads*wide)
	c.byColumns = !p.byRows
	if p.byRows {
		p.share = roundUp((m+threads-1)/threads, high)
		b.dispatch(c, (m+p.share-1)/p.share)
		return
	}
	p.share = roundUp((n+threads-1)/threads, wide)
	b.dispatch(c, (n+p.share-1)/p.share)
}

func roundUp(n, m int) int { return (n + m - 1) / m * m }

// shape is the tile, in vectors and rows, for n columns.
func (s *isa) shape(l layout, n int) (vectors, rows int) {
	vectors = s.rowsWide
	if l == tn && n != s.rowsWide*s.lanes {
		vectors = s.colsWide
	}
	vectors = min(vectors, (n+s.lanes-1)/s.lanes)
	if l == tn {
		return vectors, s.colsMost[vectors]
	}
	return vectors, s.rowsMost[vectors]
}

func productPart(c *call, ws *workspace, part int) {
	p := &c.product
	r := multiplication{isa: c.b.isa, product: p, ws: ws, m1: p.c.rows, n1: p.c.cols}
	lo := part * p.share
	if p.byRows {
		r.m0, r.m1 = lo, min(lo+p.share, r.m1)
	} else {
		r.n0, r.n1 = lo, min(lo+p.share, r.n1)
	}
	r.run()
}

// tileArgs is the argument of a tile; the generator knows the offsets of its
// fields. Strides are in bytes.
type tileArgs struct {
	k        int
	a        *float32
	lda      int
	b        *float32
	ldb      int
	c        *float32 // result
	ldc      int
	in       *float32 // stored sums to continue from; nil starts from +0
	ldin     int
	triangle int // row i has i more steps (rows), or starts i steps later (cols)
	merges   int
	mask     uint64   // columns of the last vector, for mask registers
	maskRow  *int32   // and for vector masks
	next     *float32 // A that a later tile reads, to fetch
	ahead    *float32 // C of the next tile, to fetch
	merge    [maxMerges]struct {
		p  *float32
		ld int
	}
	maskRows [16]int32
}

// setMask selects the first n of the last vector's columns.
func (t *tileArgs) setMask(lanes, n int) {
	t.mask = 1<<n - 1
	if lanes == 8 {
		for i := range 8 {
			t.maskRows[i] = -1
		}
		t.maskRow = &t.maskRows[8-n]
	}
}

func (t *tileArgs) call(f func(*byte)) { f((*byte)(unsafe.Pointer(t))) }
