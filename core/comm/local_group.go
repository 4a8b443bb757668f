package comm

import (
	"fmt"
	"github.com/lockstep-ml/lockstep/core/comm/internal/protocol"
	"slices"
	"strings"
)

// group is a set of ranks of one world that meet for collectives. The world's
// mutex guards it.
type group struct {
	w        *world
	parent   *group
	children []*group
	ranks    []int // world ranks, by rank in the group

	left    map[int]bool // world ranks that closed this group
	busy    []*call      // by rank: the operation the rank is in, or nil
	seq     uint64       // collectives that are over
	meeting *meeting     // the collective in progress, or nil
	pairs   map[[2]int]*pair

	meetings [2]meeting // see convene
}

func newGroup(w *world, parent *group, ranks []int) *group {
	return &group{
		w: w, parent: parent, ranks: ranks,
		left: map[int]bool{}, busy: make([]*call, len(ranks)), pairs: map[[2]int]*pair{},
	}
}

// hasLeft reports whether a world rank closed this group or one it was split
// from.
func (g *group) hasLeft(world int) bool {
	for ; g != nil; g = g.parent {
		if g.left[world] {
			return true
		}
	}
	return false
}

// admit refuses a call that cannot succeed: the world has failed, the rank has
// closed the group, or is still in another operation of it.
func (g *group) admit(rank int, k *call) *protocol.Failure {
	switch {
	case g.w.first != nil:
		return g.w.first
	case g.hasLeft(g.ranks[rank]):
		return g.w.fail(protocol.TooLate(g.ranks, rank, &k.Call))
	case k.Invalid != nil:
		return g.w.fail(protocol.Refused(g.ranks, rank, &k.Call))
	case g.busy[rank] != nil:
		return g.w.fail(protocol.Overlapping(g.ranks, rank, &k.Call, &g.busy[rank].Call))
	}
	g.busy[rank] = k
	return nil
}

// interrupted is the failure of a rank that stopped waiting, because of why,
// for the ranks in missing.
func (g *group) interrupted(rank int, k *call, why error, missing []int) *protocol.Failure {
	switch why {
	case errWorldFailed:
		return g.w.first
	case ErrDeadline:
		return g.w.fail(protocol.Expired(g.ranks, &k.Call, missing, g.w.opts.Deadline))
	}
	return g.w.fail(protocol.Stopped(g.ranks, rank, &k.Call, why))
}

// stuck follows the chain of ranks that wait for each other from a message of
// rank, and describes it if no rank on it can ever go on: it closes, or it ends
// at a rank that waits in a collective for all.
func (g *group) stuck(rank int) error {
	chain := make([]int, 0, 8) // on the stack: most chains are short
	for r := rank; ; r = g.busy[r].Peer {
		k := g.busy[r]
		if k == nil || k.served {
			return nil
		}
		closed := slices.Contains(chain, r)
		if !closed {
			chain = append(chain, r)
		}
		if closed || !k.IsMessage() {
			break
		}
	}
	if len(chain) < 2 {
		return nil
	}
	slices.Sort(chain)
	said := make([]string, len(chain))
	for i, r := range chain {
		said[i] = g.busy[r].Said(g.ranks, r)
	}
	return fmt.Errorf("%w: %s: each waits for another", ErrMismatch, strings.Join(said, ", "))
}

// leave fails the world if a rank of it, or of a group split from it, waits for
// the world rank that has just closed it.
func (g *group) leave(world int) {
	rank := slices.Index(g.ranks, world)
	if rank < 0 {
		return
	}
	for r, k := range g.busy {
		if k == nil || k.served {
			continue
		}
		if r == rank || !k.IsMessage() || k.Peer == rank {
			g.w.fail(protocol.NeedsLeft(g.ranks, world, &k.Call))
			return
		}
	}
	for _, child := range g.children {
		child.leave(world)
	}
}
