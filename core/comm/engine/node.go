//go:build unix

package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm/internal/protocol"
	"github.com/lockstep-ml/lockstep/core/comm/wire"
	"github.com/lockstep-ml/lockstep/kernels"
)

// node is one rank of a world: what its ends of all groups share.
type node struct {
	cfg   *Config
	be    kernels.Backend
	hub   *hub // of rank 0
	ctl   *channel
	addrs []map[string]string // where ranks listen, by the names of their ways

	mu     sync.Mutex
	first  *protocol.Failure
	failed chan struct{}      // closed together with first
	gone   chan struct{}      // closed together with closed
	links  map[linkKey]*link  // that peers have made
	ends   map[uint64]*end    // open, by group
	asked  map[uint64]bool    // groups that rank 0 has asked about
	left   map[uint64]parting // by group
	closed bool
	moves  uint64 // operations begun and ended

	broken atomic.Bool // first is set
}

// linkKey names a link: its group, and the peer's rank in the world.
type linkKey struct {
	group uint64
	peer  int
}

// parting is what peers had done in a group when they closed it, by rank in the world.
type parting map[int]*departure

// enter makes a node, without any connection but its listeners.
func enter(cfg Config, be kernels.Backend) (*node, error) {
	if err := cfg.validate(); err != nil {
		cfg.close()
		return nil, err
	}
	n := &node{cfg: &cfg, be: be, failed: make(chan struct{}), gone: make(chan struct{}),
		links: map[linkKey]*link{}, ends: map[uint64]*end{}, asked: map[uint64]bool{}, left: map[uint64]parting{}}
	if cfg.Rank == 0 {
		n.hub = newHub(n.cfg)
	}
	for i := range n.cfg.Ways {
		w := &n.cfg.Ways[i]
		go n.cfg.terms(w).Serve(w.Listener, func(g *wire.Guest) { n.receive(g, w) }, nil)
	}
	return n, nil
}

// receive keeps the connection of a peer.
func (n *node) receive(g *wire.Guest, w *Way) {
	switch {
	case !g.Hello.Control:
		n.adopt(g, w)
	case n.hub == nil:
		g.Refuse(fmt.Errorf("rank %d does not coordinate", n.cfg.Rank))
	default:
		n.hub.join(g)
	}
}

// adopt keeps a data connection that a peer has made.
func (n *node) adopt(g *wire.Guest, w *Way) {
	h := &g.Hello
	key := linkKey{h.Group, h.From}
	n.mu.Lock()
	taken := n.links[key] != nil || n.closed
	n.mu.Unlock()
	if taken {
		g.Refuse(fmt.Errorf("rank %d has no use for a connection of rank %d for group %x", n.cfg.Rank, h.From, h.Group))
		return
	}
	if g.Welcome() != nil || !n.keep(key, w, g.Conn) {
		g.Conn.Close()
	}
}

// keep makes a connection the link of its key, unless there is one.
func (n *node) keep(key linkKey, w *Way, conn net.Conn) bool {
	ctx, cancel := context.WithTimeout(context.Background(), wire.Patience)
	defer cancel()
	made, err := w.Link(ctx, conn, false)
	if err != nil {
		return false
	}
	l := newLink(made, key.peer, n.be)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.links[key] != nil || n.closed {
		l.close()
		return false
	}
	n.links[key] = l
	n.wake()
	n.linked(w)
	return true
}

// linked tells of a link that is made.
func (n *node) linked(w *Way) {
	if n.cfg.Linked != nil {
		n.cfg.Linked(w.Name)
	}
}

// join connects to rank 0 and returns when all ranks have.
func (n *node) join(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.Rendezvous)
	defer cancel()
	h := n.cfg.terms(n.cfg.control()).Hello(0)
	h.Control, h.Addrs = true, map[string]string{}
	for i := range n.cfg.Ways {
		h.Addrs[n.cfg.Ways[i].Name] = n.cfg.Ways[i].addr()
	}
	ch, conn, err := n.dial(ctx, n.cfg.control(), n.cfg.Coordinator, h, true)
	if err != nil {
		return fmt.Errorf("comm: rank %d joins at %s: %w", n.cfg.Rank, n.cfg.Coordinator, err)
	}
	n.ctl = &channel{ch}
	stop := context.AfterFunc(ctx, func() { conn.SetReadDeadline(time.Now()) })
	defer stop()
	for {
		first, err := n.ctl.receive(n.cfg.Rendezvous)
		switch {
		case err != nil:
			conn.Close()
			return fmt.Errorf("comm: rank %d: not all of %d ranks have come%s: %w", n.cfg.Rank, n.cfg.Size, n.absent(), err)
		case first.Kind == noteAbort && first.Failure != nil:
			conn.Close()
			return fmt.Errorf("comm: rank %d: %w", n.cfg.Rank, first.Failure.Failure().Err)
		case first.Kind == noteTable && len(first.Addrs) == n.cfg.Size:
			n.addrs = first.Addrs
			go n.listen()
			go n.beat()
			return nil
		default: // of a rank that was told where all listen before this one, and has left already
			n.hear(first)
		}
	}
}

// absent lists the ranks that have not come, where this rank knows.
func (n *node) absent() string {
	if n.hub == nil {
		return ""
	}
	n.hub.mu.Lock()
	defer n.hub.mu.Unlock()
	var late []int
	for r, m := range n.hub.ranks {
		if m == nil {
			late = append(late, r)
		}
	}
	if len(late) == 0 {
		return ""
	}
	return ": " + protocol.ListRanks(late) + " did not"
}

// dial connects to a peer and shakes hands; again says that it may not be there yet.
func (n *node) dial(ctx context.Context, w *Way, addr string, h wire.Hello, again bool) (*wire.Channel, net.Conn, error) {
	for {
		conn, err := w.Dial(ctx, addr)
		if err == nil {
			var ch *wire.Channel
			if ch, err = n.cfg.terms(w).Greet(ctx, conn, h); err == nil {
				return ch, ch.Conn, nil
			}
			conn.Close()
		}
		if refused := (*wire.Refusal)(nil); !again || errors.As(err, &refused) {
			return nil, nil, err
		}
		select {
		case <-ctx.Done():
			return nil, nil, err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// listen reads what rank 0 says.
func (n *node) listen() {
	for {
		x, err := n.ctl.receive(n.cfg.Silence)
		if err != nil {
			if !n.isClosed() {
				n.end(protocol.Failure{Peer: 0, Err: fmt.Errorf("%w: rank %d hears nothing of rank 0: %w", protocol.ErrLost, n.cfg.Rank, err)})
			}
			return
		}
		n.hear(x)
	}
}

// hear does what a note of rank 0 asks for.
func (n *node) hear(x note) {
	switch {
	case x.Kind == noteAbort && x.Failure != nil:
		n.end(x.Failure.Failure())
	case x.Kind == noteQuery:
		n.answer(x.Group)
	case x.Kind == noteAsk:
		n.tellStand(x.Check)
	case x.Kind == noteLeft && x.Left != nil:
		n.depart(x)
	}
}

// beat tells rank 0 that this rank lives.
func (n *node) beat() {
	every := time.NewTicker(n.cfg.Silence / 6)
	defer every.Stop()
	for n.ctl.send(note{Kind: noteBeat, Rank: n.cfg.Rank}, n.cfg.Silence) == nil { // else listen says why
		select {
		case <-every.C:
		case <-n.gone:
			return
		}
	}
}

func (n *node) isClosed() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.closed
}

// end ends the world as this rank knows it.
func (n *node) end(f protocol.Failure) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.first == nil {
		n.first = &f
		n.broken.Store(true)
		close(n.failed)
		n.wake()
	}
}

// fail ends the world with f unless it has ended, and returns its failure: the first
// that rank 0 was told of.
func (n *node) fail(f protocol.Failure) *protocol.Failure {
	if !n.broken.Load() {
		told := f.Tell()
		if n.ctl.send(note{Kind: noteFail, Rank: n.cfg.Rank, Failure: &told}, time.Second) == nil {
			select {
			case <-n.failed:
			case <-time.After(2 * time.Second):
			}
		}
		n.end(f) // where rank 0 is silent
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.first.Peer == f.Peer && n.first.Err.Error() == f.Err.Error() {
		return &f // with its causes
	}
	return n.first
}

// odd tells rank 0 that a peer called something else than this rank in a group, and
// waits for what comes of it.
func (n *node) odd(e *end, call *protocol.Call) *protocol.Failure {
	err := n.ctl.send(note{Kind: noteOdd, Rank: n.cfg.Rank, Group: e.id, Ranks: e.ranks, Call: call.Say()}, time.Second)
	if err == nil {
		select {
		case <-n.failed:
		case <-time.After(n.cfg.Deadline):
		}
	}
	return n.fail(protocol.Failure{Peer: -1, Err: fmt.Errorf("%w: %s, a peer something else", protocol.ErrMismatch, call.Said(e.ranks, e.rank))})
}

// answer tells rank 0 what this rank calls in a group, now or when it next calls.
func (n *node) answer(group uint64) {
	n.mu.Lock()
	e := n.ends[group]
	var call *protocol.Call
	if e != nil {
		call = e.busy
	}
	n.asked[group] = call == nil
	n.mu.Unlock()
	if call != nil {
		n.say(e, call)
	}
}

func (n *node) say(e *end, call *protocol.Call) {
	_ = n.ctl.send(note{Kind: noteSaid, Rank: n.cfg.Rank, Group: e.id, Ranks: e.ranks, Call: call.Say()}, time.Second)
}

// depart notes that a peer has closed a group.
func (n *node) depart(x note) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.left[x.Group] == nil {
		n.left[x.Group] = parting{}
	}
	n.left[x.Group][x.Rank] = x.Left
	n.wake()
}

// wake wakes all operations that wait. The caller holds mu.
func (n *node) wake() {
	for _, e := range n.ends {
		e.waker.wake()
	}
}

// leave closes what is left of a node whose world this rank has closed.
func (n *node) leave() {
	_ = n.ctl.send(note{Kind: noteBye, Rank: n.cfg.Rank}, time.Second)
	n.shut()
	n.ctl.Conn.Close()
	if n.hub == nil {
		n.cfg.close()
		return
	}
	go func() { // rank 0 listens to the others until they have left
		<-n.hub.over
		n.cfg.close()
	}()
}

// shut is the end of the node's links, and of its beat.
func (n *node) shut() {
	n.mu.Lock()
	if !n.closed {
		n.closed = true
		close(n.gone)
	}
	links := n.links
	n.links = map[linkKey]*link{}
	n.mu.Unlock()
	for _, l := range links {
		l.close()
	}
}
