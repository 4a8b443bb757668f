package othertrainer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/kernels"
)

// This file is a communicator of one's own, as simple as one can be: ranks meet,
// and the last to come does the work of all of them. TestCommunicator hands it
// to the conformance suite.

// Reduce is how a communicator combines the ranks' elements: dst all get the
// reduction of src, in rank order. A backend's own Reduce is the canonical tree.
type Reduce func(be kernels.Backend, dst, src []kernels.Tensor, op kernels.Op)

// NewWorld makes the ends of a world of goroutine ranks. be gives the memory
// that a rank's tensors live in, all of one kind.
func NewWorld(size int, be func(rank int) kernels.Backend, reduce Reduce) []comm.Communicator {
	w := &world{reduce: reduce, failed: make(chan struct{})}
	ranks := make([]int, size)
	for i := range ranks {
		ranks[i] = i
	}
	g := w.newGroup(ranks, nil)
	ends := make([]comm.Communicator, size)
	for i := range ends {
		ends[i] = &end{g: g, rank: i, be: be(i)}
	}
	return ends
}

// world is what all groups share; its mutex guards everything.
type world struct {
	reduce Reduce
	mu     sync.Mutex
	groups []*group
	failed chan struct{} // closed once cause and peer are set
	cause  error
	peer   int
}

// fail ends the world: its first failure is the answer to every operation.
func (w *world) fail(peer int, cause error) {
	if w.cause == nil {
		w.cause, w.peer = cause, peer
		close(w.failed)
	}
}

// group is a set of ranks that meet. Collectives meet all ranks, a message its
// sender and its receiver, so meetings have a key: the two, or everyone.
type group struct {
	w        *world
	parent   *group
	ranks    []int // world ranks
	left     []bool
	meetings map[key]*meeting
	seq      map[key]uint64
}

type key struct{ from, to int } // of a message; everyone is {-1, -1}

var everyone = key{-1, -1}

func (w *world) newGroup(ranks []int, parent *group) *group {
	g := &group{w: w, parent: parent, ranks: ranks, left: make([]bool, len(ranks)), meetings: map[key]*meeting{}, seq: map[key]uint64{}}
	w.groups = append(w.groups, g)
	return g
}

// gone reports whether a rank of the group has closed it, or one it came from.
func (g *group) gone(rank int) bool {
	if g.left[rank] || g.parent == nil {
		return g.left[rank]
	}
	return g.parent.gone(slices.Index(g.parent.ranks, g.ranks[rank]))
}

// meeting is one operation in progress: who has come, with what.
type meeting struct {
	calls map[int]*call // by rank of the group
	done  chan struct{}
}

// call is what one rank asked for. What must agree is in the text.
type call struct {
	op, text  string
	dst, src  kernels.Tensor
	ints      []uint64
	bytes     []byte
	all       [][]byte
	color     int
	order     int
	joined    *group // of a split
	reduction kernels.Op
}

// end is one rank's end of a group.
type end struct {
	g    *group
	rank int
	be   kernels.Backend
}

func (e *end) Rank() int    { return e.rank }
func (e *end) Size() int    { return len(e.g.ranks) }
func (e *end) Ranks() []int { return slices.Clone(e.g.ranks) }

// meet brings the call to its meeting. The last rank of those that take part
// runs work, under the lock, on the calls by rank; the others wait.
func (e *end) meet(ctx context.Context, k key, members []int, c *call, invalid error, work func(calls []*call)) error {
	g, w := e.g, e.g.w
	w.mu.Lock()
	seq := g.seq[k]
	failed := func() error {
		return &comm.Error{Op: c.op, Rank: g.ranks[e.rank], Peer: w.peer, Seq: seq, Err: w.cause}
	}
	m := e.enter(ctx, k, members, c, invalid)
	if w.cause == nil && len(m.calls) == len(members) {
		delete(g.meetings, k)
		g.seq[k]++
		if calls := e.agree(m, members); calls != nil {
			work(calls)
			close(m.done)
		}
	}
	if w.cause != nil {
		defer w.mu.Unlock()
		return failed()
	}
	w.mu.Unlock()
	select {
	case <-m.done:
		return nil
	case <-w.failed:
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-m.done: // the work was done before the end
		return nil
	default:
	}
	w.fail(g.ranks[e.rank], context.Cause(ctx))
	return failed()
}

// enter joins the meeting, or fails the world where that cannot end well.
func (e *end) enter(ctx context.Context, k key, members []int, c *call, invalid error) *meeting {
	g, w := e.g, e.g.w
	me := g.ranks[e.rank]
	switch {
	case ctx.Err() != nil:
		w.fail(me, context.Cause(ctx))
	case invalid != nil:
		w.fail(me, fmt.Errorf("%w: %w", comm.ErrArgument, invalid))
	}
	for _, r := range members {
		if g.gone(r) {
			w.fail(g.ranks[r], fmt.Errorf("%w: rank %d", comm.ErrLeft, g.ranks[r]))
		}
	}
	m := g.meetings[k]
	if m == nil {
		m = &meeting{calls: map[int]*call{}, done: make(chan struct{})}
		g.meetings[k] = m
	}
	m.calls[e.rank] = c
	return m
}

// agree gives the calls by rank if they fit; otherwise it fails the world and
// blames a rank of the smallest party.
func (e *end) agree(m *meeting, members []int) []*call {
	parties := map[string][]int{}
	var calls []*call
	for _, r := range members {
		calls = append(calls, m.calls[r])
		parties[m.calls[r].text] = append(parties[m.calls[r].text], r)
	}
	if len(parties) == 1 {
		return calls
	}
	blamed := -1
	for _, party := range parties {
		if blamed < 0 || len(party) < len(parties[m.calls[blamed].text]) {
			blamed = party[0]
		}
	}
	text := ""
	for _, r := range members {
		text += fmt.Sprintf(" rank %d called %s;", e.g.ranks[r], m.calls[r].text)
	}
	e.g.w.fail(e.g.ranks[blamed], fmt.Errorf("%w:%s", comm.ErrMismatch, text))
	return nil
}

// collective is a meeting of all ranks.
func (e *end) collective(ctx context.Context, c *call, invalid error, work func(calls []*call)) error {
	return e.meet(ctx, everyone, e.everyRank(), c, invalid, work)
}

func (e *end) everyRank() []int {
	out := make([]int, e.Size())
	for i := range out {
		out[i] = i
	}
	return out
}

// row is a tensor as one row, what the kernels of elements want.
func row(t kernels.Tensor) kernels.Tensor { return t.As(1, t.Len()) }

func (e *end) copy(dst, src kernels.Tensor) {
	if dst.Len() > 0 && e.be.Span(dst) != e.be.Span(src) {
		e.be.Copy(row(dst), row(src))
	}
}

// valid refuses tensors with gaps and unknown reductions.
func valid(op kernels.Op, ts ...kernels.Tensor) error {
	for _, t := range ts {
		if !t.Contiguous() {
			return fmt.Errorf("%s is not contiguous", t)
		}
	}
	if op != kernels.Sum && op != kernels.Max {
		return fmt.Errorf("unknown reduction %d", op)
	}
	return nil
}

func (e *end) AllReduce(ctx context.Context, x kernels.Tensor, op kernels.Op) error {
	c := &call{op: names.OpAllReduce, text: fmt.Sprintf("all-reduce of %d elements (%s)", x.Len(), op), dst: x, reduction: op}
	return e.collective(ctx, c, valid(op, x), func(calls []*call) {
		var all []kernels.Tensor
		for _, k := range calls {
			all = append(all, row(k.dst))
		}
		e.g.w.reduce(e.be, all, all, op)
	})
}

// parts checks a vector, its bounds, and this rank's part of it.
func (e *end) parts(whole, part kernels.Tensor, bounds []int) ([]int, error) {
	if err := valid(kernels.Sum, whole, part); err != nil {
		return nil, err
	}
	b, err := shard.CheckBounds(bounds, whole.Len(), e.Size())
	if err != nil {
		return nil, err
	}
	own := whole.Range(b[e.rank], b[e.rank+1])
	if part.Len() != own.Len() {
		return nil, fmt.Errorf("a part of %d elements, bounds %v", part.Len(), b)
	}
	if part.Len() > 0 && e.be.Span(part) != e.be.Span(own) && e.be.Span(part).Overlaps(e.be.Span(whole)) {
		return nil, errors.New("the part lies elsewhere in the whole")
	}
	return b, nil
}

func (e *end) ReduceScatter(ctx context.Context, dst, src kernels.Tensor, bounds []int, op kernels.Op) error {
	b, invalid := e.parts(src, dst, bounds)
	c := &call{op: names.OpReduceScatter, text: fmt.Sprintf("reduce-scatter of %d elements (%s) at %v", src.Len(), op, b), dst: dst, src: src}
	return e.collective(ctx, c, errors.Join(invalid, valid(op)), func(calls []*call) {
		for r, k := range calls {
			var all []kernels.Tensor
			for _, other := range calls {
				all = append(all, other.src.Range(b[r], b[r+1]))
			}
			e.g.w.reduce(e.be, []kernels.Tensor{row(k.dst)}, all, op)
		}
	})
}

func (e *end) AllGather(ctx context.Context, dst, src kernels.Tensor, bounds []int) error {
	b, invalid := e.parts(dst, src, bounds)
	c := &call{op: names.OpAllGather, text: fmt.Sprintf("all-gather of %d elements at %v", dst.Len(), b), dst: dst, src: src}
	return e.collective(ctx, c, invalid, func(calls []*call) {
		for _, k := range calls {
			for r, other := range calls {
				e.copy(k.dst.Range(b[r], b[r+1]), other.src)
			}
		}
	})
}

func (e *end) Broadcast(ctx context.Context, x kernels.Tensor, root int) error {
	invalid := valid(kernels.Sum, x)
	who := "nobody"
	if root < 0 || root >= e.Size() {
		invalid = fmt.Errorf("root %d of %d ranks", root, e.Size())
	} else {
		who = fmt.Sprintf("rank %d", e.g.ranks[root])
	}
	c := &call{op: names.OpBroadcast, text: fmt.Sprintf("broadcast of %d elements from %s", x.Len(), who), dst: x}
	return e.collective(ctx, c, invalid, func(calls []*call) {
		for _, k := range calls {
			e.copy(k.dst, calls[root].dst)
		}
	})
}

func (e *end) Barrier(ctx context.Context) error {
	return e.collective(ctx, &call{op: names.OpBarrier, text: names.OpBarrier}, nil, func([]*call) {})
}

func (e *end) AllReduceInt(ctx context.Context, x []uint64, op kernels.Op) error {
	c := &call{op: names.OpAllReduceInt, text: fmt.Sprintf("all-reduce-int of %d elements (%s)", len(x), op), ints: x}
	return e.collective(ctx, c, valid(op), func(calls []*call) {
		for i := range x {
			v := uint64(0)
			for _, k := range calls {
				if op == kernels.Max {
					v = max(v, k.ints[i])
				} else {
					v += k.ints[i]
				}
			}
			for _, k := range calls {
				k.ints[i] = v
			}
		}
	})
}

func (e *end) AllGatherBytes(ctx context.Context, b []byte) ([][]byte, error) {
	c := &call{op: names.OpAllGatherBytes, text: names.OpAllGatherBytes, bytes: b}
	err := e.collective(ctx, c, nil, func(calls []*call) {
		for _, k := range calls {
			for _, other := range calls {
				k.all = append(k.all, slices.Clone(other.bytes))
			}
		}
	})
	return c.all, err
}

// message is a meeting of two: the text must be the same on both sides.
func (e *end) message(ctx context.Context, op string, x kernels.Tensor, k key, peer int) error {
	invalid := valid(kernels.Sum, x)
	members := []int{e.rank}
	if peer < 0 || peer >= e.Size() || peer == e.rank {
		invalid = fmt.Errorf("%s: rank %d of %d, from rank %d", op, peer, e.Size(), e.rank)
	} else {
		members = []int{k.from, k.to}
	}
	c := &call{op: op, text: fmt.Sprintf("a message of %d elements", x.Len()), dst: x}
	return e.meet(ctx, k, members, c, invalid, func(calls []*call) { e.copy(calls[1].dst, calls[0].dst) })
}

func (e *end) Send(ctx context.Context, x kernels.Tensor, to int) error {
	return e.message(ctx, names.OpSend, x, key{e.rank, to}, to)
}

func (e *end) Recv(ctx context.Context, x kernels.Tensor, from int) error {
	return e.message(ctx, names.OpRecv, x, key{from, e.rank}, from)
}

func (e *end) Split(ctx context.Context, color, order int) (comm.Communicator, error) {
	c := &call{op: names.OpSplit, text: names.OpSplit, color: color, order: order}
	err := e.collective(ctx, c, nil, func(calls []*call) { e.g.split(calls) })
	if err != nil || c.joined == nil {
		return nil, err
	}
	return &end{g: c.joined, rank: slices.Index(c.joined.ranks, e.g.ranks[e.rank]), be: e.be}, nil
}

// split makes a group of the calls of each color, ordered by (order, rank).
func (g *group) split(calls []*call) {
	colors := map[int][]int{}
	for r, c := range calls {
		if c.color >= 0 {
			colors[c.color] = append(colors[c.color], r)
		}
	}
	for _, members := range colors {
		slices.SortStableFunc(members, func(a, b int) int { return calls[a].order - calls[b].order })
		var ranks []int
		for _, r := range members {
			ranks = append(ranks, g.ranks[r])
		}
		sub := g.w.newGroup(ranks, g)
		for _, r := range members {
			calls[r].joined = sub
		}
	}
}

// Close fails the world if a peer is waiting for this rank.
func (e *end) Close() error {
	w, me := e.g.w, e.g.ranks[e.rank]
	w.mu.Lock()
	defer w.mu.Unlock()
	e.g.left[e.rank] = true
	for _, g := range w.groups {
		r := slices.Index(g.ranks, me)
		if r < 0 || !g.gone(r) {
			continue
		}
		for k := range g.meetings {
			if k == everyone || k.from == r || k.to == r {
				w.fail(me, fmt.Errorf("%w: rank %d", comm.ErrLeft, me))
			}
		}
	}
	return nil
}
