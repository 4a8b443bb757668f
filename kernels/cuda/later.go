//go:build cuda

package cuda

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/lockstep-ml/lockstep/gpu"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Products are not launched when they are called for: those that do not depend on each
// other and follow one another become one launch of each kind, whose blocks fill the device
// better than one small product after another. Any other call launches them first.

// mostLater is how many products wait at most: each block looks for its own among them.
const mostLater = 64

// product is a product that waits.
type product struct {
	method string
	sort   int
	c      kernels.Tensor
	k      int // of the one term of NT and TN
	groups int
	terms  []kernels.Term // with their groups, in memory of the queue
}

// queue is the products that wait, none of which depends on another. The memory of terms
// and groups is used again.
type queue struct {
	products []product
	terms    []kernels.Term
	groups   []int
	launched uint64 // products so far
}

// enter locks the backend for a call that is not a product: what waits is launched.
func (b *Backend) enter() {
	b.mu.Lock()
	b.flush()
}

// later lets a product wait; the backend is locked. What is wrong with it shows here, not
// when it is launched.
func (b *Backend) later(method string, c kernels.Tensor, k int, terms ...kernels.Term) {
	q := &b.queue
	for _, n := range []int{c.Rows, c.Cols, k, len(terms)} {
		narrow(method, n)
	}
	if len(q.products) == mostLater || q.orders(c, terms) {
		b.flush()
	}
	p := product{method: method, c: c, k: k, groups: 1}
	if len(terms) > 0 {
		p.groups = kernels.GroupCount(terms[0].Groups)
	}
	p.sort = sortOf(c.Rows, c.Cols, p.groups)
	first := len(q.terms)
	for _, t := range terms {
		narrow(method, t.A.Cols)
		at := len(q.groups)
		q.groups = append(q.groups, t.Groups...)
		t.Groups = q.groups[at:len(q.groups):len(q.groups)]
		q.terms = append(q.terms, t)
	}
	p.terms = q.terms[first:len(q.terms):len(q.terms)]
	q.products = append(q.products, p)
}

// narrow refuses a dimension that kernels do not take.
func narrow(what string, n int) {
	if n > math.MaxInt32 {
		panic(fmt.Sprintf("kernels: %s: %d is beyond what a dimension may be", what, n))
	}
}

// extent is the addresses from lo to below hi.
type extent struct{ lo, hi uint64 }

func extentOf(t kernels.Tensor) (e extent) {
	if t.Len() > 0 {
		e.lo = address(t)
		e.hi = e.lo + uint64((t.Rows-1)*stride(t)+t.Cols)*elementBytes
	}
	return e
}

// meets reports whether two extents share an address. Rows of strided matrices may lie
// between each other's: that counts.
func (e extent) meets(o extent) bool { return max(e.lo, o.lo) < min(e.hi, o.hi) }

// orders reports whether a product of terms to c must come after one that waits: it reads or
// writes what that one writes, or writes what that one reads.
func (q *queue) orders(c kernels.Tensor, terms []kernels.Term) bool {
	to := extentOf(c)
	for _, p := range q.products {
		if extentOf(p.c).meets(to) {
			return true
		}
		for _, t := range p.terms {
			if extentOf(t.A).meets(to) || extentOf(t.B).meets(to) {
				return true
			}
		}
		set := extentOf(p.c)
		for _, t := range terms {
			if extentOf(t.A).meets(set) || extentOf(t.B).meets(set) {
				return true
			}
		}
	}
	return false
}

// flush launches the products that wait, together those of one kind and sort.
func (b *Backend) flush() {
	q := &b.queue
	if len(q.products) == 0 {
		return
	}
	ps := q.products
	if b.room(q.bytes()) {
		for len(ps) > 0 {
			n := 1
			for i := 1; i < len(ps); i++ {
				if ps[i].method == ps[0].method && ps[i].sort == ps[0].sort {
					p := ps[i]
					copy(ps[n+1:i+1], ps[n:i]) // the others keep their order
					ps[n] = p
					n++
				}
			}
			b.together(ps[:n])
			ps = ps[n:]
		}
	}
	clear(q.products) // nothing of a caller's is kept
	clear(q.terms)
	q.products, q.terms, q.groups = q.products[:0], q.terms[:0], q.groups[:0]
}

// Sizes of what describes products on the device.
const (
	productBytes = 80
	termBytes    = 48
)

// bytes is how many bytes of lists the launches take, and how many lists.
func (q *queue) bytes() (bytes, lists int) {
	bytes, lists = productBytes*len(q.products)+4*len(q.groups), len(q.products)
	for _, p := range q.products {
		bytes += termBytes * len(p.terms)
		lists += 1 + len(p.terms)
	}
	return bytes, lists
}

// together launches products of one kind and sort.
func (b *Backend) together(ps []product) {
	t := tileFor(ps[0].sort, ps)
	list, blocks := make([]byte, 0, productBytes*len(ps)), 0
	for _, p := range ps {
		list = b.describe(list, p, blocks)
		blocks += t.count(p.c.Rows, p.c.Cols)
	}
	c := b.begin("product_" + strings.ToLower(strings.TrimPrefix(ps[0].method, "MatMul")) + t.size)
	c.words(b.list(list)).ints(len(ps))
	c.r.calls++
	b.queue.launched += uint64(len(ps))
	if err := c.r.kernel.Launch(b.stream, gpu.Dim{X: blocks}, gpu.Dim{X: c.r.threads}, 0, c.p); err != nil {
		b.note(fmt.Errorf("%s: %w", namesOf(ps), err))
	}
}

// namesOf says which products a launch is of.
func namesOf(ps []product) string {
	var names []string
	for _, p := range ps {
		k := p.k
		for _, t := range p.terms {
			k = max(k, t.A.Cols)
		}
		names = append(names, fmt.Sprintf("%s %dx%d, K %d", p.method, p.c.Rows, p.c.Cols, k))
	}
	return strings.Join(slices.Compact(names), "; ")
}

// describe adds a product as kernels read it (Product of product.cu).
func (b *Backend) describe(list []byte, p product, first int) []byte {
	var x, y kernels.Tensor
	var at uint64
	if p.method == "MatMulNN" {
		at = b.list(b.termsOf(p))
	} else {
		x, y, at = p.terms[0].A, p.terms[0].B, b.bounds(p.groups, p.terms[0])
	}
	for _, w := range []uint64{address(p.c), uint64(stride(p.c)), address(x), uint64(stride(x)), address(y), uint64(stride(y)), at} {
		list = binary.LittleEndian.AppendUint64(list, w)
	}
	for _, n := range []int{p.groups, len(p.terms), p.c.Rows, p.c.Cols, p.k, first} {
		list = binary.LittleEndian.AppendUint32(list, uint32(int32(n)))
	}
	return list
}

// termsOf is the list of a product's terms, as kernels read it (Term of product.cu).
func (b *Backend) termsOf(p product) []byte {
	list := make([]uint64, 0, termBytes/8*len(p.terms))
	for _, t := range p.terms {
		list = append(list, address(t.A), uint64(stride(t.A)), address(t.B), uint64(stride(t.B)), b.bounds(p.groups, t), uint64(t.A.Cols))
	}
	return uint64s(list)
}

// bounds is where the bounds of a term's groups are; one group needs none.
func (b *Backend) bounds(groups int, t kernels.Term) uint64 {
	if groups <= 1 {
		return 0
	}
	return b.list(int32s(t.Groups))
}
