//go:build unix

package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/comm/internal/protocol"
	"github.com/lockstep-ml/lockstep/core/comm/wire"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
)

// end is one rank's end of a group.
type end struct {
	n     *node
	id    uint64
	ranks []int // of the group, in the world
	rank  int   // in the group
	waker waker

	// Guarded by the node's mutex.
	busy           *protocol.Call // the operation in progress
	label          comm.Label     // of the operation in progress
	misses         []int          // whom it has waited for for a while
	closed         bool
	seq            uint64         // collectives that are over
	sent, received map[int]uint64 // messages, by the peer's rank in the world
	children       []*end

	// Of the goroutine that is in an operation.
	links   []*link // by rank in the group
	reducer Reducer // nil where the algorithm asks for none, or has not yet
	moved   int64   // by the last operation
	fds     []unix.PollFd
	scratch kernels.Buffer
	crowded int // waits for which others are known to keep the processor
}

// newEnd opens a group.
func newEnd(n *node, id uint64, ranks []int, rank int) *end {
	e := &end{n: n, id: id, ranks: ranks, rank: rank, links: make([]*link, len(ranks)),
		sent: map[int]uint64{}, received: map[int]uint64{}}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ends[id] = e
	return e
}

// Rank is this rank's index in the group.
func (e *end) Rank() int { return e.rank }

// Size is the number of ranks of the group.
func (e *end) Size() int { return len(e.ranks) }

// Ranks holds the world ranks of the group.
func (e *end) Ranks() []int { return slices.Clone(e.ranks) }

// Moved implements comm.Mover.
func (e *end) Moved() int64 { return e.moved }

func (e *end) me() int { return e.ranks[e.rank] }
func (e *end) place() protocol.Place {
	return protocol.Place{Rank: e.rank, Ranks: e.ranks, Mem: e.n.be}
}

// operation runs one call: it is admitted, its peers are connected, work does it.
func (e *end) operation(ctx context.Context, call protocol.Call, work func(*exchange) *protocol.Failure) (err error) {
	k := &call
	e.moved = 0
	f := e.admit(ctx, k)
	if f != nil {
		return e.error(k, f)
	}
	defer func() {
		if p := recover(); p != nil {
			e.n.fail(protocol.Broken(e.ranks, e.rank, k, protocol.ErrPanicked))
			e.release(k, false)
			panic(p)
		}
	}()
	f = e.work(ctx, k, work)
	e.release(k, f == nil)
	if f != nil {
		return e.error(k, f)
	}
	return nil
}

// work does an admitted call.
func (e *end) work(ctx context.Context, k *protocol.Call, work func(*exchange) *protocol.Failure) *protocol.Failure {
	if ctx.Err() != nil {
		return e.n.fail(protocol.Stopped(e.ranks, e.rank, k, context.Cause(ctx)))
	}
	if err := e.n.be.Sync(); err != nil {
		return e.n.fail(protocol.Broken(e.ranks, e.rank, k, err))
	}
	x := &exchange{e: e, call: k, digest: digest(k), lanes: make([]lane, len(e.ranks))}
	defer x.disconnect()
	if f := x.connect(ctx); f != nil {
		return f
	}
	if f := x.reducer(ctx, e, e.links); f != nil {
		return f
	}
	if f := work(x); f != nil {
		return f
	}
	if err := e.n.be.Sync(); err != nil {
		return e.n.fail(protocol.Broken(e.ranks, e.rank, k, err))
	}
	return nil
}

// digest is what both sides of an operation say: of a message, its length.
func digest(k *protocol.Call) uint64 {
	if k.IsMessage() {
		return (&protocol.Call{Op: names.OpSend, Count: k.Count, Peer: -1}).Digest()
	}
	return k.Digest()
}

// admit refuses a call that cannot succeed: the world has failed, this rank has closed
// the group, its arguments break a rule, it is still in another operation, a peer that
// it needs has left.
func (e *end) admit(ctx context.Context, k *protocol.Call) *protocol.Failure {
	n := e.n
	n.mu.Lock()
	first, closed, busy := n.first, e.closed, e.busy
	k.Seq = e.seq
	if k.IsMessage() && k.Peer >= 0 && k.Peer < len(e.ranks) {
		k.Seq = e.messages(k)[e.ranks[k.Peer]]
	}
	if first == nil && !closed && busy == nil && k.Invalid == nil {
		e.busy, e.label = k, comm.LabelOf(ctx)
		n.moves++
	}
	asked := n.asked[e.id] && e.busy == k
	n.mu.Unlock()
	switch {
	case first != nil:
		return first
	case closed:
		return n.fail(protocol.TooLate(e.ranks, e.rank, k))
	case k.Invalid != nil:
		return n.fail(protocol.Refused(e.ranks, e.rank, k))
	case busy != nil:
		return n.fail(protocol.Overlapping(e.ranks, e.rank, k, busy))
	}
	if asked {
		n.say(e, k)
	}
	return nil
}

// messages counts those that are over of the call's direction.
func (e *end) messages(k *protocol.Call) map[int]uint64 {
	if k.Op == names.OpSend {
		return e.sent
	}
	return e.received
}

// release ends a call.
func (e *end) release(k *protocol.Call, well bool) {
	e.n.mu.Lock()
	defer e.n.mu.Unlock()
	e.busy, e.misses = nil, nil
	e.n.moves++
	if e.closed {
		defer e.shut()
	}
	switch {
	case !well:
	case k.IsMessage():
		e.messages(k)[e.ranks[k.Peer]]++
	default:
		e.seq++
	}
}

// without reports whether rank i of the group closed it before it did its part of a
// call.
func (e *end) without(k *protocol.Call, i int, seq uint64) bool {
	n := e.n
	n.mu.Lock()
	defer n.mu.Unlock()
	left := n.left[e.id][e.ranks[i]]
	switch {
	case left == nil:
		return false
	case k.Op == names.OpSend:
		return left.Received[e.me()] <= seq
	case k.Op == names.OpRecv:
		return left.Sent[e.me()] <= seq
	}
	return left.Collectives <= seq
}

// error is the world's failure for the operation that this rank was in.
func (e *end) error(k *protocol.Call, f *protocol.Failure) error {
	return &comm.Error{Op: k.Op, Rank: e.me(), Peer: f.Peer, Seq: k.Seq, Err: f.Err}
}

// connect gives the lanes of a call their links, new ones where there are none.
func (x *exchange) connect(ctx context.Context) *protocol.Failure {
	e := x.e
	for i, world := range e.ranks {
		if i == e.rank || x.call.IsMessage() && i != x.call.Peer {
			continue
		}
		l := &x.lanes[i]
		l.seq = x.call.Seq
		if e.links[i] == nil {
			link, f := x.link(ctx, i, world)
			if f != nil {
				return f
			}
			e.links[i] = link
		}
		if !e.links[i].hold() {
			return e.n.fail(protocol.TooLate(e.ranks, e.rank, x.call))
		}
		l.link = e.links[i]
	}
	return nil
}

// disconnect is the end of connect, of as many lanes as have links.
func (x *exchange) disconnect() {
	for _, l := range x.peers() {
		l.link.revoke() // whatever an operation that fails has left
		l.link.drop()
	}
}

// link makes the link to a peer: the one that is later in the world dials.
func (x *exchange) link(ctx context.Context, i, world int) (*link, *protocol.Failure) {
	e, n := x.e, x.e.n
	begun := time.Now()
	until := begun.Add(n.cfg.Deadline)
	for pause := 50 * time.Microsecond; ; pause = min(2*pause, 5*time.Millisecond) {
		if f := x.interrupted(ctx); f != nil {
			return nil, f
		}
		if e.without(x.call, i, x.call.Seq) {
			return nil, n.fail(protocol.NeedsLeft(e.ranks, world, x.call))
		}
		x.tell(time.Since(begun), []int{world})
		if time.Now().After(until) {
			return nil, x.expired([]int{world})
		}
		l, err := e.reach(ctx, world)
		switch {
		case err != nil && n.broken.Load():
			continue
		case err != nil && time.Now().Add(lostPatience).After(until):
			return nil, n.fail(protocol.Failure{Peer: world, Err: fmt.Errorf("rank %d in %s, link to rank %d: %w", e.me(), x.call.Describe(e.ranks), world, err)})
		case l != nil:
			x.goesOn()
			return l, nil
		}
		time.Sleep(pause)
	}
}

// reach dials a peer that is earlier in the world, or looks whether a later one has
// dialed.
func (e *end) reach(ctx context.Context, world int) (*link, error) {
	n := e.n
	if world > e.me() {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.links[linkKey{e.id, world}], nil
	}
	ctx, cancel := context.WithTimeout(ctx, wire.Patience)
	defer cancel()
	var all []error
	for i := range n.cfg.Ways {
		w := &n.cfg.Ways[i]
		addr, common := n.addrs[world][w.Name]
		if !common {
			continue
		}
		l, err := e.by(ctx, w, addr, world)
		if err == nil {
			return l, nil
		}
		all = append(all, fmt.Errorf("by %s: %w", w.Name, err))
	}
	return nil, errors.Join(all...)
}

// by makes a link to a peer by one way.
func (e *end) by(ctx context.Context, w *Way, addr string, world int) (*link, error) {
	h := e.n.cfg.terms(w).Hello(world)
	h.Group = e.id
	_, conn, err := e.n.dial(ctx, w, addr, h, false)
	if err != nil {
		return nil, err
	}
	made, err := w.Link(ctx, conn, true)
	if err != nil {
		conn.Close()
		return nil, err
	}
	e.n.linked(w)
	return newLink(made, world, e.n.be), nil
}

// Close implements comm.Communicator. It also leaves the groups split from this one.
func (e *end) Close() error {
	e.leave()
	if e.id == worldID {
		e.n.leave()
	}
	return nil
}

// worldID is the id of the group of all ranks.
const worldID = 0

// leave closes a group and those split from it, and tells its ranks what they still
// get.
func (e *end) leave() {
	n := e.n
	n.mu.Lock()
	if e.closed {
		n.mu.Unlock()
		return
	}
	e.closed = true
	delete(n.ends, e.id)
	d := &departure{Collectives: e.seq, Sent: e.sent, Received: e.received}
	busy := e.busy
	n.mu.Unlock()
	for _, c := range e.children {
		c.leave()
	}
	_ = n.ctl.send(note{Kind: noteLeft, Rank: e.me(), Group: e.id, Ranks: e.ranks, Left: d}, time.Second)
	if busy != nil {
		n.end(protocol.TooLate(e.ranks, e.rank, busy)) // release shuts what it uses
		return
	}
	e.shut()
}

// shut ends what operations of the group used.
func (e *end) shut() {
	for _, l := range e.links {
		if l != nil {
			l.close()
		}
	}
	if e.reducer != nil {
		e.reducer.Close(!e.n.broken.Load())
	}
	e.waker.close()
	if e.scratch != nil {
		e.n.be.Free(e.scratch)
		e.scratch = nil
	}
}

// childID is the id of a group split from another one, the same on all of its ranks.
func childID(parent, seq uint64, color int) uint64 {
	h := fnv.New64a()
	for _, x := range []uint64{parent, seq, uint64(color)} {
		_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, x)) // a hash takes all
	}
	return h.Sum64() | 1 // never the world's
}

// bytes is the memory of a contiguous tensor.
func (e *end) bytes(t kernels.Tensor) ([]byte, error) {
	if t.Len() == 0 {
		return nil, nil
	}
	x, ok := e.n.be.Host(t)
	if !ok {
		return nil, fmt.Errorf("tensors of backend %s lie where the network cannot read them", e.n.be.Name())
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x)), nil
}
