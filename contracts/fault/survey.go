package fault

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/parallel"
	"github.com/lockstep-ml/lockstep/kernels"
)

// kind is a kind of collective: all calls of it on all ranks are broken together.
// A send and its receive are one.
type kind struct {
	group      names.Axis
	op, tensor string
	reduction  kernels.Op
}

// message stands for send and receive.
const message = "message"

func kindOf(c *Call) kind {
	k := kind{c.Group, c.Op, c.Label.Tensor, c.Reduction}
	if k.op == names.OpSend || k.op == names.OpRecv {
		k.op = message
	}
	return k
}

func (k kind) is(c *Call) bool { return kindOf(c) == k }

// reduces reports whether the kind has a reduction.
func (k kind) reduces() bool {
	return k.op == names.OpAllReduce || k.op == names.OpAllReduceInt || k.op == names.OpReduceScatter
}

// bounded reports whether the kind has bounds.
func (k kind) bounded() bool { return k.op == names.OpReduceScatter || k.op == names.OpAllGather }

func (k kind) String() string {
	s := fmt.Sprintf("%s:%s:%s", k.group, k.op, k.tensor)
	if k.reduces() {
		s += ":" + k.reduction.String()
	}
	return s
}

// term is one contribution to a gradient: the n-th call of a kernel that
// continues a gradient in a unit's backward pass over a micro-batch.
type term struct {
	unit   int
	kernel string
	n      int
}

func (t term) String() string { return fmt.Sprintf("%d.%s.%d", t.unit, t.kernel, t.n) }

// surveyed is what a run does.
type surveyed struct {
	mu        sync.Mutex
	kindsSeen map[kind]bool
	terms     map[term]bool
	counts    map[int]int // matrix products, by rank
}

func (s *surveyed) watch(p *launch.Parts) {
	OnCalls(func(c *Call) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		if c.Comm.Size() > 1 { // among one rank there is nothing to break
			s.kindsSeen[kindOf(c)] = true
		}
		return false
	}, (*Call).Do)(p)
	onBackends(p, Every, func(r int, be kernels.Backend) kernels.Backend {
		return afterProducts(be, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.counts[r]++
		})
	})
	onTerms(func(t term, c contribution) {
		s.mu.Lock()
		s.terms[t] = true
		s.mu.Unlock()
		c.Do()
	})(p)
}

// kinds lists the collectives, sorted.
func (s *surveyed) kinds() []kind {
	return slices.SortedFunc(maps.Keys(s.kindsSeen), func(a, b kind) int { return cmp.Compare(a.String(), b.String()) })
}

// gradients lists the terms, sorted.
func (s *surveyed) gradients() []term {
	return slices.SortedFunc(maps.Keys(s.terms), func(a, b term) int { return cmp.Compare(a.String(), b.String()) })
}

// products is how many matrix products each of the ranks computes at least.
func (s *surveyed) products(world int) int {
	least := s.counts[0]
	for r := range world {
		least = min(least, s.counts[r])
	}
	return max(1, least)
}

// onTerms does do in place of every contribution to a gradient, on all ranks:
// the calls of kernels that continue one, within a backward pass.
func onTerms(do func(t term, c contribution)) Fault {
	return func(p *launch.Parts) {
		var passes PerRank[[]*pass]
		decorate(&p.Updater, func(rank int, u parallel.Updater) parallel.Updater { return &passing{u, passes.At(rank)} })
		onBackends(p, Every, func(rank int, be kernels.Backend) kernels.Backend {
			return &contributing{be, passes.At(rank), do}
		})
	}
}

// pass is where a rank's computation is.
type pass struct {
	unit     int
	backward bool
	calls    map[string]int // of kernels within the pass of the unit
}

// passing tells where the computation is; passes of units nest.
type passing struct {
	parallel.Updater
	at *[]*pass
}

func (p *passing) Before(ctx context.Context, unit int, ph model.Phase) error {
	*p.at = append(*p.at, &pass{unit, ph == model.Backward, map[string]int{}})
	return p.Updater.Before(ctx, unit, ph)
}

func (p *passing) After(ctx context.Context, unit int, ph model.Phase) error {
	*p.at = slices.DeleteFunc(*p.at, func(x *pass) bool { return x.unit == unit })
	return p.Updater.After(ctx, unit, ph)
}

// contributing is a backend whose contributions to gradients are replaced.
type contributing struct {
	kernels.Backend
	at *[]*pass
	do func(t term, c contribution)
}

// contribution is what adds to a gradient, not yet done: where it goes to and how
// it gets there.
type contribution struct {
	be   kernels.Backend
	into kernels.Tensor
	do   func(into kernels.Tensor)
}

// Do does it.
func (c contribution) Do() { c.do(c.into) }

func (c *contributing) call(kernel string, into kernels.Tensor, original func(into kernels.Tensor)) {
	x := contribution{c.Backend, into, original}
	if n := len(*c.at); n > 0 && (*c.at)[n-1].backward {
		p := (*c.at)[n-1]
		t := term{p.unit, kernel, p.calls[kernel]}
		p.calls[kernel]++
		c.do(t, x)
		return
	}
	x.Do()
}

func (c *contributing) MatMulTN(x, a, b kernels.Tensor) {
	c.call("MatMulTN", x, func(into kernels.Tensor) { c.Backend.MatMulTN(into, a, b) })
}

func (c *contributing) ColumnSum(dst, x kernels.Tensor) {
	c.call("ColumnSum", dst, func(into kernels.Tensor) { c.Backend.ColumnSum(into, x) })
}

func (c *contributing) EmbeddingGrad(dtable, dx kernels.Tensor, tokens []int32, first int) {
	c.call("EmbeddingGrad", dtable, func(into kernels.Tensor) { c.Backend.EmbeddingGrad(into, dx, tokens, first) })
}

// RMSNormGrad keeps the gradient of its input as it is, however often that of the
// weight is taken.
func (c *contributing) RMSNormGrad(dx, dw, dy, x, rstd, w, res kernels.Tensor) {
	c.call("RMSNormGrad", dw, func(into kernels.Tensor) {
		c.aside(dx, func(d kernels.Tensor) { c.Backend.RMSNormGrad(d, into, dy, x, rstd, w, res) })
	})
	c.aside(dw, func(lost kernels.Tensor) { c.Backend.RMSNormGrad(dx, lost, dy, x, rstd, w, res) })
}

// aside calls f with memory like that of x, whose elements do not count.
func (c *contributing) aside(x kernels.Tensor, f func(kernels.Tensor)) {
	buf, err := c.Alloc(x.Len())
	if err != nil {
		panic(fmt.Sprintf("contracts: a fault needs memory for %d elements: %v", x.Len(), err))
	}
	defer c.Free(buf)
	f(kernels.Flat(buf).As(x.Rows, x.Cols))
}
