//go:build unix

package engine

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm/internal/protocol"
	"github.com/lockstep-ml/lockstep/core/comm/wire"
)

// grace is how long rank 0 waits for what the ranks of a group called, once it knows
// that two of them do not fit: so that it can say which rank is the odd one.
const grace = 100 * time.Millisecond

// hub is rank 0's side of the control connections: who has come, and why the world
// ended. It lives until every rank has left.
type hub struct {
	cfg *Config

	mu      sync.Mutex
	ranks   []*member // nil until it comes
	come    int
	first   *protocol.Failure
	queries map[uint64]*query // by group
	stands  stands
	asked   uint64 // questions for stands
	// lateness is that a rank's deadline is over.
	lateness bool
	gone     int
	over     chan struct{} // closed when all have left, or the world has failed and they are gone
}

// member is a rank as the hub knows it.
type member struct {
	*channel
	addrs map[string]string
	bye   bool
}

// query is a question to all ranks of a group: what do you call?
type query struct {
	ranks []int
	roll  protocol.Roll
	known int
}

func newHub(cfg *Config) *hub {
	return &hub{cfg: cfg, ranks: make([]*member, cfg.Size), queries: map[uint64]*query{}, over: make(chan struct{})}
}

// join takes in a rank; its notes are read until it leaves.
func (h *hub) join(g *wire.Guest) {
	rank := g.Hello.From
	m := &member{channel: &channel{g.Channel}, addrs: g.Hello.Addrs}
	h.mu.Lock()
	if h.ranks[rank] != nil {
		h.mu.Unlock()
		g.Refuse(fmt.Errorf("rank %d has come already", rank))
		return
	}
	if err := g.Welcome(); err != nil {
		h.mu.Unlock()
		g.Conn.Close()
		return
	}
	h.ranks[rank] = m
	h.come++
	all := h.come == len(h.ranks)
	h.mu.Unlock()
	if all {
		h.begin()
	}
	h.listen(rank, m)
}

// begin tells all ranks where all listen.
func (h *hub) begin() {
	table := note{Kind: noteTable}
	for _, m := range h.ranks {
		table.Addrs = append(table.Addrs, m.addrs)
	}
	h.broadcast(table, nil)
	go h.beat()
}

// beat tells all ranks that rank 0 lives.
func (h *hub) beat() {
	every := time.NewTicker(h.cfg.Silence / 6)
	defer every.Stop()
	for {
		select {
		case <-every.C:
			h.broadcast(note{Kind: noteBeat}, nil)
		case <-h.over:
			return
		}
	}
}

// broadcast sends a note to ranks; nil are all. Who does not take it is noticed by
// whoever listens to it.
func (h *hub) broadcast(n note, ranks []int) {
	for r, m := range h.ranks {
		if m != nil && (ranks == nil || slices.Contains(ranks, r)) {
			_ = m.send(n, h.cfg.Silence)
		}
	}
}

// listen reads a rank's notes.
func (h *hub) listen(rank int, m *member) {
	for {
		n, err := m.receive(h.cfg.Silence)
		if err != nil {
			h.lost(rank, m, err)
			return
		}
		switch n.Kind {
		case noteFail:
			if n.Failure == nil {
				continue
			}
			if f := n.Failure.Failure(); errors.Is(f.Err, protocol.ErrDeadline) {
				h.late(f)
			} else {
				h.fail(f)
			}
		case noteOdd, noteSaid:
			h.heard(rank, n)
		case noteStand:
			if n.Stand != nil {
				h.stood(rank, n.Stand)
			}
		case noteLeft:
			h.broadcast(n, slices.DeleteFunc(slices.Clone(n.Ranks), func(r int) bool { return r == rank }))
		case noteBye:
			h.mu.Lock()
			m.bye = true
			h.mu.Unlock()
			h.stood(rank, &stand{})
		}
	}
}

// forsake ends the connections of ranks that have come to a world that does not come
// about.
func (h *hub) forsake() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range h.ranks {
		if m != nil {
			m.Conn.Close()
		}
	}
}

// lost is of a rank whose connection ended. One that has left may go.
func (h *hub) lost(rank int, m *member, why error) {
	h.mu.Lock()
	bye := m.bye
	h.gone++
	if h.gone == len(h.ranks) {
		close(h.over)
	}
	h.mu.Unlock()
	m.Conn.Close()
	if bye {
		return
	}
	var slow net.Error
	switch {
	case errors.As(why, &slow) && slow.Timeout():
		why = fmt.Errorf("%w: rank %d has said nothing for %v", protocol.ErrLost, rank, h.cfg.Silence)
	case errors.Is(why, io.EOF):
		why = fmt.Errorf("%w: rank %d ended without a word", protocol.ErrLost, rank)
	default:
		why = fmt.Errorf("%w: connection to rank %d: %w", protocol.ErrLost, rank, why)
	}
	h.fail(protocol.Failure{Peer: rank, Err: why})
}

// fail ends the world, once.
func (h *hub) fail(f protocol.Failure) {
	h.mu.Lock()
	known := h.first != nil
	if !known {
		h.first = &f
	}
	h.mu.Unlock()
	if !known {
		told := f.Tell()
		h.broadcast(note{Kind: noteAbort, Failure: &told}, nil)
	}
}

// heard is of a rank that says what it called in a group: because a peer called
// something else, or because it was asked.
func (h *hub) heard(rank int, n note) {
	i := slices.Index(n.Ranks, rank)
	if i < 0 || n.Call == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	q := h.queries[n.Group]
	if q == nil {
		if n.Kind != noteOdd {
			return
		}
		q = &query{ranks: n.Ranks, roll: make(protocol.Roll, len(n.Ranks))}
		h.queries[n.Group] = q
		go h.broadcast(note{Kind: noteQuery, Group: n.Group}, n.Ranks)
		time.AfterFunc(grace, func() { h.decide(q) })
	}
	if i < len(q.roll) && q.roll[i] == nil {
		q.roll[i] = n.Call.Call()
		if q.known++; q.known == len(q.roll) {
			go h.decide(q)
		}
	}
}

// decide says who called what.
func (h *hub) decide(q *query) {
	h.mu.Lock()
	f := q.roll.Mismatch(q.ranks)
	h.mu.Unlock()
	h.fail(f)
}
