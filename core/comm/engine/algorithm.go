//go:build unix

package engine

import (
	"context"

	"github.com/lockstep-ml/lockstep/core/comm/internal/protocol"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
)

// algorithm is one rank's part of the float collectives. The call is admitted, the
// lanes are connected.
type algorithm interface {
	allReduce(ctx context.Context, x *exchange, t kernels.Tensor, op kernels.Op) *protocol.Failure
	reduceScatter(ctx context.Context, x *exchange, dst, src kernels.Tensor, op kernels.Op) *protocol.Failure
	// allGather finds this rank's part in its place.
	allGather(ctx context.Context, x *exchange, t kernels.Tensor) *protocol.Failure
	broadcast(ctx context.Context, x *exchange, t kernels.Tensor, root int) *protocol.Failure
}

// algorithm is the world's; a group of one has nothing to order.
func (e *end) algorithm() algorithm {
	if len(e.ranks) > 1 {
		switch e.n.cfg.Algorithm {
		case names.Ring:
			return ring{}
		case names.Star:
			return star{}
		case names.MPI:
			return library{}
		}
	}
	return tree{}
}

// Elements of a chunk: what is reduced while the next one is under way. With two
// ranks, which exchange whole vectors, fewer and larger ones are faster.
const (
	chunkOfTwo  = 256 << 10
	chunkOfMany = 128 << 10
)

// short is how many elements a vector has at most of which messages cost more than bytes.
const short = 4 << 10

// slots is how many chunks of each peer may wait for those of the others.
const slots = 4

func (e *end) chunk() int {
	if len(e.ranks) == 2 {
		return chunkOfTwo
	}
	return chunkOfMany
}

// chunks is how many chunks n elements have.
func (e *end) chunks(n int) int { return (n + e.chunk() - 1) / e.chunk() }

// chunkOf is the c-th chunk of a tensor.
func (e *end) chunkOf(t kernels.Tensor, c int) kernels.Tensor {
	lo := c * e.chunk()
	return t.Range(lo, min(lo+e.chunk(), t.Len()))
}

// fold reduces chunks in order: chunk c of every peer into a slot, with this rank's
// own into where the result goes.
type fold struct {
	x     *exchange
	own   kernels.Tensor                 // this rank's elements
	into  kernels.Tensor                 // of the result; may be own
	slots []kernels.Tensor               // of each rank's chunks; absent are this rank's, and those of lanes that lend
	lent  map[int]*[slots]kernels.Tensor // what lanes have lent, by rank
	wide  int                            // elements of a slot
	op    kernels.Op
	pairs bool // left fold in rank order, two at a time, instead of the tree

	ready []int // per chunk: peers whose elements have come, and sends that are over
	wants int   // what ready must be
	over  int   // chunks reduced
	srcs  []kernels.Tensor
}

// newFold prepares to reduce own, whose chunks every peer sends, into into.
func (x *exchange) newFold(into, own kernels.Tensor, op kernels.Op) (*fold, error) {
	e := x.e
	n := len(e.ranks)
	f := &fold{x: x, own: own, into: into, op: op, wide: min(e.chunk(), own.Len()), wants: n - 1,
		ready: make([]int, e.chunks(own.Len())), srcs: make([]kernels.Tensor, n)}
	f.lent = map[int]*[slots]kernels.Tensor{}
	for i, l := range x.peers() {
		if l.link.lends(f.wide) {
			f.lent[i] = new([slots]kernels.Tensor)
		}
	}
	room, err := e.room((n - 1 - len(f.lent)) * slots * f.wide)
	if err != nil {
		return nil, err
	}
	f.slots = make([]kernels.Tensor, n)
	for i := range x.peers() {
		if f.lent[i] == nil {
			f.slots[i] = room.Range(0, slots*f.wide)
			room = room.Range(slots*f.wide, room.Len())
		}
	}
	for c := range f.ready {
		if n == 1 { // nobody sends what would set it off
			f.reduce(c)
		}
	}
	return f, nil
}

// room is scratch memory of n elements, for one operation.
func (e *end) room(n int) (kernels.Tensor, error) {
	if e.scratch == nil || e.scratch.Len() < n {
		if e.scratch != nil {
			e.n.be.Free(e.scratch)
			e.scratch = nil
		}
		buf, err := e.n.be.Alloc(max(n, 1))
		if err != nil {
			return kernels.Tensor{}, err
		}
		e.scratch = buf
	}
	return kernels.Flat(e.scratch).Range(0, n), nil
}

// slot is where chunk c of a rank is put.
func (f *fold) slot(rank, c int) kernels.Tensor {
	if lent := f.lent[rank]; lent != nil {
		return lent[c%slots]
	}
	lo := c % slots * f.wide
	return f.slots[rank].Range(lo, lo+f.x.e.chunkOf(f.own, c).Len())
}

// expect is chunk c of rank's elements.
func (f *fold) expect(rank, c int, phase uint16) (w expecting, err error) {
	w = expecting{kind: piece, phase: phase, index: uint32(c)}
	if lent := f.lent[rank]; lent != nil {
		w.size = f.x.e.chunkOf(f.own, c).Len()
		w.lend = func(t kernels.Tensor) {
			lent[c%slots] = t
			f.came(c, &w)
		}
	} else {
		w.payload, err = f.x.e.bytes(f.slot(rank, c))
		w.done = func([]byte) { f.came(c, &w) }
	}
	if c >= slots { // the slot is free when the chunk before in it is reduced
		w.gate, w.need = &f.over, c-slots
	}
	return w, err
}

// came notes a piece of chunk c.
func (f *fold) came(c int, w *expecting) {
	f.x.e.moved += int64(w.bytes())
	f.step(c)
}

// step counts what chunk c waits for, and reduces what is complete.
func (f *fold) step(c int) {
	f.ready[c]++
	for f.over < len(f.ready) && f.ready[f.over] == f.wants {
		f.reduce(f.over)
		f.over++
	}
}

// reduce puts the reduction of chunk c where it belongs.
func (f *fold) reduce(c int) {
	e := f.x.e
	own, into := e.chunkOf(f.own, c), e.chunkOf(f.into, c)
	n := own.Len()
	for r := range f.srcs {
		f.srcs[r] = own.As(1, n)
		if r != e.rank {
			f.srcs[r] = f.slot(r, c).As(1, n)
		}
	}
	dst := []kernels.Tensor{into.As(1, n)}
	defer f.giveBack()
	if !f.pairs {
		e.n.be.Reduce(dst, f.srcs, f.op)
		return
	}
	for r := 1; r < len(f.srcs); r++ {
		left := dst[0]
		if r == 1 {
			left = f.srcs[0]
		}
		e.n.be.Reduce(dst, []kernels.Tensor{left, f.srcs[r]}, f.op)
	}
}

// giveBack returns what lanes have lent of the chunk that is reduced.
func (f *fold) giveBack() {
	if len(f.lent) == 0 {
		return
	}
	_ = f.x.e.n.be.Sync() // its fault is the operation's end's to see
	for i := range f.lent {
		l := &f.x.lanes[i]
		if err := l.link.lender.Return(); err != nil {
			f.x.torn, f.x.why = l, err
		}
	}
}
