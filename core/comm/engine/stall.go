//go:build unix

package engine

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/comm/internal/protocol"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/waits"
)

// patienceOfOne is how long an operation of a rank waits until rank 0 is told, who then
// sees whether ranks wait for each other.
const patienceOfOne = 200 * time.Millisecond

// stand is what a rank does in every group that it has open.
type stand struct {
	Moves  uint64         `json:"moves"` // operations begun and ended: another number is another moment
	Groups []standInGroup `json:"groups"`
	Check  uint64         `json:"check,omitempty"` // the question that this answers
}

// standInGroup is how far a rank is in one group.
type standInGroup struct {
	Group uint64         `json:"group"`
	Ranks []int          `json:"ranks"`
	Done  departure      `json:"done"`
	Call  *protocol.Said `json:"call,omitempty"` // in progress
	Label comm.Label     `json:"label"`
	// Misses are the ranks for which the call has waited for a while.
	Misses []int `json:"misses,omitempty"`
}

// stand is this rank's.
func (n *node) stand(check uint64) *stand {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := &stand{Moves: n.moves, Check: check}
	for _, e := range n.ends {
		g := standInGroup{Group: e.id, Ranks: e.ranks, Label: e.label, Done: departure{Collectives: e.seq, Sent: clone(e.sent), Received: clone(e.received)}}
		if e.busy != nil {
			g.Call, g.Misses = e.busy.Say(), e.misses
		}
		s.Groups = append(s.Groups, g)
	}
	slices.SortFunc(s.Groups, func(a, b standInGroup) int { return slices.Compare(a.Ranks, b.Ranks) })
	return s
}

// sound reports whether the peers of all calls, and who is missed, are of their groups:
// what another process says need not be so.
func (s *stand) sound() bool {
	return !slices.ContainsFunc(s.Groups, func(g standInGroup) bool {
		return g.Call != nil && g.Call.Call().IsMessage() && (g.Call.Peer < 0 || g.Call.Peer >= len(g.Ranks)) ||
			slices.ContainsFunc(g.Misses, func(r int) bool { return !slices.Contains(g.Ranks, r) })
	})
}

func clone(m map[int]uint64) map[int]uint64 {
	out := make(map[int]uint64, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

// tellStand tells rank 0 what this rank does.
func (n *node) tellStand(check uint64) {
	_ = n.ctl.send(note{Kind: noteStand, Rank: n.cfg.Rank, Stand: n.stand(check)}, time.Second) // who listens says why not
}

// stands is what rank 0 knows of ranks that wait. The hub's mutex guards it.
type stands struct {
	of    map[int]*stand
	check uint64         // the question in the air; 0 is none
	open  map[int]uint64 // ranks that have not answered it, with the moves that they must still have
}

// stood takes a rank's stand, and asks again, or decides, where ranks wait for each
// other. What ranks said one after another need not have been true at once: only where
// none has moved when asked again was it.
func (h *hub) stood(rank int, s *stand) {
	if !s.sound() {
		h.fail(protocol.Failure{Peer: rank, Err: fmt.Errorf("%w: rank %d says that it is in an operation with a rank that its group has not", protocol.ErrCorrupt, rank)})
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	k := &h.stands
	if k.of == nil {
		k.of = map[int]*stand{}
	}
	k.of[rank] = s
	if k.check != 0 && s.Check == k.check {
		moves, asked := k.open[rank]
		delete(k.open, rank)
		switch {
		case asked && moves != s.Moves:
			k.check = 0 // it was not so; how is it now?
		case len(k.open) == 0:
			k.check = 0
			if f := h.deadlock(); f != nil {
				go h.fail(*f)
			}
			return
		}
	}
	if k.check != 0 || h.deadlock() == nil {
		return
	}
	h.asked++
	k.check, k.open = h.asked, map[int]uint64{}
	for r, x := range k.of {
		k.open[r] = x.Moves
	}
	go h.broadcast(note{Kind: noteAsk, Check: k.check}, nil)
}

// deadlock is the failure of ranks that wait for each other, nil where some may go on.
// The caller holds the mutex.
func (h *hub) deadlock() *protocol.Failure {
	d := waits.Find(h.waiting())
	if d == nil {
		return nil
	}
	if f := h.misfit(d); f != nil {
		return f
	}
	f := protocol.Failure{Peer: -1, Err: fmt.Errorf("%w: %s", protocol.ErrDeadlock, d)}
	if absent := d.Absent(); len(absent) == 1 {
		f.Peer = absent[0]
	}
	return &f
}

// misfit is the failure of ranks that wait for each other in one group: they called
// what does not fit.
func (h *hub) misfit(d *waits.Deadlock) *protocol.Failure {
	var ranks []int
	for _, m := range d.Missed {
		if ranks != nil && !slices.Equal(ranks, m.Meeting.Ranks) {
			return nil
		}
		ranks = m.Meeting.Ranks
	}
	var said []string
	for _, r := range ranks {
		for _, g := range h.groups(r) {
			if g.Call != nil && slices.Equal(g.Ranks, ranks) {
				said = append(said, g.Call.Call().Said(ranks, slices.Index(ranks, r)))
			}
		}
	}
	if len(said) < 2 {
		return nil
	}
	return &protocol.Failure{Peer: -1, Err: fmt.Errorf("%w: %s: each waits for another", protocol.ErrMismatch, strings.Join(said, ", "))}
}

func (h *hub) groups(rank int) []standInGroup {
	if s := h.stands.of[rank]; s != nil {
		return s.Groups
	}
	return nil
}

// waiting is what all ranks do, as far as they have said. A rank that said nothing may
// do anything, and so may one whose queue alone waits: it may compute.
func (h *hub) waiting() []waits.Rank {
	out := make([]waits.Rank, len(h.ranks))
	for r, m := range h.ranks {
		out[r] = waits.Rank{ID: r, Ended: m != nil && m.bye}
		works := true
		for _, g := range h.groups(r) {
			if g.Call == nil {
				continue
			}
			w := h.wait(r, &g)
			out[r].Waits = append(out[r].Waits, w)
			if len(w.For) == 0 {
				out[r].Busy = true // all have come: it is under way
			}
			works = works && g.Label.Overlap
		}
		out[r].Busy = !out[r].Ended && (out[r].Busy || works)
	}
	return out
}

// wait is what a rank waits for in a group.
func (h *hub) wait(rank int, g *standInGroup) waits.Wait {
	c := g.Call
	m := &waits.Meeting{Name: c.Op, Group: g.Label.Group, Beside: g.Label.Overlap, Ranks: g.Ranks, Seq: c.Seq, Step: g.Label.Step, From: -1, To: -1}
	if g.Label.Tensor != "" {
		m.Name += " of " + g.Label.Tensor
	}
	if c.Count > 0 && c.Op != names.OpAllGatherBytes {
		m.Size = fmt.Sprintf("%d elements", c.Count)
	}
	w := waits.Wait{Meeting: m, Queue: g.Label.Overlap}
	for i, peer := range g.Ranks {
		if peer != rank && !(c.Call().IsMessage() && i != c.Peer) && !h.came(peer, rank, g) {
			w.For = append(w.For, peer)
		}
	}
	if c.Call().IsMessage() {
		if m.From, m.To = rank, g.Ranks[c.Peer]; c.Op == names.OpRecv {
			m.From, m.To = m.To, m.From
		}
	}
	return w
}

// came reports whether a peer has done its part of what a rank waits for, or is at it.
func (h *hub) came(peer, rank int, g *standInGroup) bool {
	for _, o := range h.groups(peer) {
		if o.Group != g.Group {
			continue
		}
		switch c := g.Call; c.Op {
		case names.OpSend:
			return o.Done.Received[rank] > c.Seq || o.at(names.OpRecv, rank, c.Seq)
		case names.OpRecv:
			return o.Done.Sent[rank] > c.Seq || o.at(names.OpSend, rank, c.Seq)
		default:
			return o.Done.Collectives > c.Seq || o.Call != nil && !o.Call.Call().IsMessage() && o.Call.Seq == c.Seq
		}
	}
	return false
}

// at reports whether a rank is at its side of a message with another one.
func (g *standInGroup) at(op string, peer int, seq uint64) bool {
	c := g.Call
	return c != nil && c.Op == op && c.Seq == seq && c.Peer >= 0 && c.Peer < len(g.Ranks) && g.Ranks[c.Peer] == peer
}
