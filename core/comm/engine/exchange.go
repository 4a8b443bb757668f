//go:build unix

package engine

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm/internal/protocol"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
)

// exchange is what one rank sends to and expects of each peer in one operation, in an
// order that both sides know, and how far it is.
type exchange struct {
	e      *end
	call   *protocol.Call
	digest uint64
	lanes  []lane // by rank in the group; this rank's own is empty
	told   bool   // rank 0 knows that it waits
	torn   *lane  // what has come on it may have changed before it was reduced
	why    error
}

// lane is the exchange with one peer.
type lane struct {
	link     *link
	seq      uint64 // of the frames
	out      []sending
	in       []expecting
	sent     int // of out
	came     int // of in
	owed     int // of out, sent and not read yet
	reading  bool
	incoming []byte         // the payload that is being read
	lent     kernels.Tensor // instead, where it lies
	head     frame          // its header, once it is there
	headed   bool
}

// pending reports whether something is to be sent, to be read, or to come.
func (l *lane) pending() bool { return l.sent < len(l.out) || l.owed > 0 || l.came < len(l.in) }

// sending is a piece for a peer. It may go once *gate is over need; a nil gate is open.
// Where it stays, nothing but what the peer answers with overwrites the payload.
type sending struct {
	kind    kind
	phase   uint16
	index   uint32
	payload []byte
	gate    *int
	need    int
	stays   bool
	done    func()
}

// expecting is a piece of a peer: a payload of a known length, or of one that its frame
// says, up to limit, which take is given.
type expecting struct {
	kind    kind
	phase   uint16
	index   uint32
	payload []byte
	limit   int // 0: payload is known
	gate    *int
	need    int
	done    func(payload []byte)
	// lend, where not nil, takes the payload, of size elements, where it lies.
	lend func(kernels.Tensor)
	size int
}

// bytes is the length of a payload that is known.
func (w *expecting) bytes() int {
	if w.lend != nil {
		return 4 * w.size
	}
	return len(w.payload)
}

// peers yields the lanes to other ranks, by rank in the group; of a message, that to its
// other side.
func (x *exchange) peers() iter.Seq2[int, *lane] {
	return func(yield func(int, *lane) bool) {
		for i := range x.lanes {
			if l := &x.lanes[i]; l.link != nil && !yield(i, l) {
				return
			}
		}
	}
}

func open(gate *int, need int) bool { return gate == nil || *gate > need }

// run works on all lanes until everything is sent and has come.
func (x *exchange) run(ctx context.Context) *protocol.Failure {
	last, idle := time.Time{}, 0
	for {
		progress, pending, f := x.round()
		switch {
		case f != nil:
			return f
		case !pending:
			return nil
		case progress:
			idle, last = 0, time.Time{}
			x.goesOn()
			continue
		}
		if f := x.interrupted(ctx); f != nil {
			return f
		}
		if idle++; idle < spins && x.e.pause(idle) {
			continue
		}
		if last.IsZero() {
			last = time.Now()
		}
		waited := time.Since(last)
		x.tell(waited, nil)
		rest := x.e.n.cfg.Deadline - waited
		if rest <= 0 {
			return x.expired(x.missing())
		}
		if !x.told {
			rest = min(rest, patienceOfOne)
		}
		if err := x.wait(ctx, rest, waited); err != nil {
			return x.e.n.fail(protocol.Broken(x.e.ranks, x.e.rank, x.call, err))
		}
	}
}

// tell tells rank 0, once, that this rank has waited for a while: for ranks of the
// world, or whoever is missing.
func (x *exchange) tell(waited time.Duration, ranks []int) {
	if waited <= patienceOfOne || x.told {
		return
	}
	if ranks == nil {
		ranks = x.missing()
	}
	x.told = true
	x.e.miss(ranks)
	x.e.n.tellStand(0)
}

// goesOn is the end of a wait.
func (x *exchange) goesOn() {
	if x.told {
		x.told = false
		x.e.miss(nil)
	}
}

// expired is the failure of ranks that this one has waited for until its deadline.
func (x *exchange) expired(ranks []int) *protocol.Failure {
	x.e.miss(ranks)
	return x.e.n.fail(protocol.Expired(x.e.ranks, x.call, ranks, x.e.n.cfg.Deadline))
}

// miss notes which ranks the operation in progress waits for.
func (e *end) miss(ranks []int) {
	e.n.mu.Lock()
	defer e.n.mu.Unlock()
	e.misses = ranks
}

// round tries every lane once.
func (x *exchange) round() (progress, pending bool, f *protocol.Failure) {
	for _, l := range x.peers() {
		p, err := x.push(l)
		if err == nil {
			var q bool
			q, f = x.pull(l)
			p = p || q
		}
		if was := l.owed; err == nil && f == nil {
			l.owed, err = l.link.owed()
			p = p || l.owed < was
		}
		switch {
		case err != nil:
			f = x.lost(l, err)
		case f == nil && x.torn != nil:
			f = x.lost(x.torn, x.why)
		}
		if f != nil {
			return false, false, f
		}
		progress = progress || p
		pending = pending || l.pending()
	}
	return progress, pending, nil
}

// push goes on with the next piece that may go. Only one: what is sent long before the
// peer sends its own waits in memory that is in no cache by the time it is read.
func (x *exchange) push(l *lane) (progress bool, err error) {
	if l.sent == len(l.out) || !open(l.out[l.sent].gate, l.out[l.sent].need) {
		return false, nil
	}
	s := &l.out[l.sent]
	f := frame{kind: s.kind, phase: s.phase, index: s.index, seq: l.seq, call: x.digest, length: uint64(len(s.payload))}
	if x.e.n.cfg.Checksum && !l.link.out.open {
		f.sum(s.payload)
	}
	progress, done, err := l.link.write(&f, s.payload, s.stays)
	if err != nil || !done {
		return progress, err
	}
	l.sent++
	if s.done != nil {
		s.done()
	}
	return progress, nil
}

// pull reads what has come and is expected.
func (x *exchange) pull(l *lane) (progress bool, f *protocol.Failure) {
	for l.came < len(l.in) {
		w := &l.in[l.came]
		if !l.reading {
			if !open(w.gate, w.need) {
				return progress, nil
			}
			l.reading, l.headed, l.incoming, l.link.in.done = true, false, w.payload, 0
		}
		p, done, f := x.receive(l, w)
		progress = progress || p
		if f != nil || !done {
			return progress, f
		}
		if err := l.head.check(l.incoming); err != nil {
			return progress, x.corrupt(l, err)
		}
		l.reading = false
		l.came++
		switch {
		case w.lend != nil:
			w.lend(l.lent)
		case w.done != nil:
			w.done(l.incoming)
		}
	}
	return progress, nil
}

// receive goes on with a frame; done says that it is there.
func (x *exchange) receive(l *lane, w *expecting) (progress, done bool, f *protocol.Failure) {
	var err error
	if !l.headed || w.lend == nil {
		if progress, done, err = l.link.read(l.incoming); err != nil {
			return progress, false, x.lost(l, err)
		}
	}
	if !l.headed && l.link.in.done >= headerBytes {
		l.headed = true
		if f := x.check(l, w); f != nil {
			return progress, false, f
		}
		if w.limit > 0 && l.head.length > 0 {
			l.incoming = make([]byte, l.head.length)
			return x.receive(l, w)
		}
	}
	if l.headed && w.lend != nil {
		if l.lent, done, err = l.link.lend(w.size); err == nil && done && l.head.summed {
			l.incoming, err = x.e.bytes(l.lent)
		}
		if err != nil {
			return progress, false, x.lost(l, err)
		}
	}
	return progress || done, done, nil
}

// check judges a header that has come: of the same call, and the piece that is
// expected.
func (x *exchange) check(l *lane, w *expecting) *protocol.Failure {
	if err := l.head.get(&l.link.in.header); err != nil {
		return x.corrupt(l, err)
	}
	h := &l.head
	switch {
	case h.kind == message && w.kind == message && h.seq == l.seq && h.call != x.digest:
		sent := protocol.Call{Op: names.OpSend, Count: int64(h.length / 4), Peer: x.e.rank}
		return x.e.n.fail(protocol.Unfit(sent.Said(x.e.ranks, x.call.Peer), x.call.Said(x.e.ranks, x.e.rank)))
	case h.kind != w.kind, h.call != x.digest, h.seq != l.seq:
		return x.e.n.odd(x.e, x.call)
	case h.phase != w.phase || h.index != w.index:
		return x.corrupt(l, fmt.Errorf("piece %d of phase %d came, piece %d of phase %d is next", h.index, h.phase, w.index, w.phase))
	case w.limit == 0 && h.length != uint64(w.bytes()):
		return x.corrupt(l, fmt.Errorf("a piece of %d bytes came, %d are next", h.length, w.bytes()))
	case w.limit > 0 && h.length > uint64(w.limit):
		return x.corrupt(l, fmt.Errorf("a piece of %d bytes came, at most %d are taken", h.length, w.limit))
	}
	return nil
}

// corrupt is of a link that carries what its sender cannot have sent.
func (x *exchange) corrupt(l *lane, err error) *protocol.Failure {
	e := x.e
	return e.n.fail(protocol.Failure{Peer: l.link.peer, Err: fmt.Errorf("rank %d in %s, link from rank %d: %w: %w",
		e.ranks[e.rank], x.call.Describe(e.ranks), l.link.peer, protocol.ErrCorrupt, err)})
}

// lost is of a link that ended. Its peer has left, or the world has failed, and this
// rank is about to hear of it; or it is lost.
func (x *exchange) lost(l *lane, err error) *protocol.Failure {
	if errors.As(err, &corruption{}) {
		return x.corrupt(l, err)
	}
	patience := time.NewTimer(lostPatience)
	defer patience.Stop()
	for {
		if f := x.parted(); f != nil {
			return f
		}
		select {
		case <-x.e.n.failed:
			return x.e.n.fail(protocol.Failure{Peer: l.link.peer, Err: err})
		case <-patience.C:
			return x.e.n.fail(protocol.Failure{Peer: l.link.peer, Err: fmt.Errorf("%w: rank %d in %s, link to rank %d: %w",
				protocol.ErrLost, x.e.ranks[x.e.rank], x.call.Describe(x.e.ranks), l.link.peer, err)})
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// lostPatience is how long a rank waits to hear why a link ended.
const lostPatience = 2 * time.Second

// interrupted is why a rank that waits must stop: the world failed, its context ended,
// a peer left.
func (x *exchange) interrupted(ctx context.Context) *protocol.Failure {
	n := x.e.n
	if n.broken.Load() {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.first
	}
	if ctx.Err() != nil {
		return n.fail(protocol.Stopped(x.e.ranks, x.e.rank, x.call, context.Cause(ctx)))
	}
	return x.parted()
}

// parted is the failure of a peer that closed the group before it sent what is
// expected, or took what it is sent.
func (x *exchange) parted() *protocol.Failure {
	for i := range x.lanes {
		l := &x.lanes[i]
		if !l.pending() {
			continue
		}
		if x.e.without(x.call, i, l.seq) {
			return x.e.n.fail(protocol.NeedsLeft(x.e.ranks, x.e.ranks[i], x.call))
		}
	}
	return nil
}

// missing lists the world ranks of which something is expected, or that do not take
// what they are sent: those that are furthest behind, for what others send may depend on
// what they get of these.
func (x *exchange) missing() (late []int) {
	least := -1
	for i := range x.lanes {
		l := &x.lanes[i]
		if l.came == len(l.in) {
			continue
		}
		if least < 0 || l.came < least {
			least, late = l.came, nil
		}
		if l.came == least {
			late = append(late, x.e.ranks[i])
		}
	}
	for i := range x.lanes {
		if l := &x.lanes[i]; least < 0 && l.pending() {
			late = append(late, x.e.ranks[i])
		}
	}
	if late == nil {
		return x.e.ranks
	}
	return late
}
