package comm

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// mismatchGrace is how long a group that knows of a mismatch waits for the
// other ranks' calls, so that the error can say which rank is the odd one.
const mismatchGrace = 100 * time.Millisecond

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
func (g *group) admit(rank int, k *call) *failure {
	me := g.ranks[rank]
	switch {
	case g.w.first != nil:
		return g.w.first
	case g.hasLeft(me):
		return g.w.fail(failure{me, fmt.Errorf("%w: %s after it closed the group", ErrLeft, g.said(rank, k))})
	case k.invalid != nil:
		return g.w.fail(failure{me, fmt.Errorf("%s: %w", g.said(rank, k), k.invalid)})
	case g.busy[rank] != nil:
		return g.w.fail(failure{me, fmt.Errorf("%w: %s while it is in %s; split the group to overlap operations",
			ErrMismatch, g.said(rank, k), g.busy[rank].describe(g.ranks))})
	}
	g.busy[rank] = k
	return nil
}

// needsLeft is the failure of a call that needs a rank which has left.
func (g *group) needsLeft(world int, k *call) *failure {
	return g.w.fail(failure{world, fmt.Errorf("%w: rank %d closed the group of ranks %v, which %s needs",
		ErrLeft, world, g.ranks, k.describe(g.ranks))})
}

// interrupted is the failure of a rank that stopped waiting, because of why,
// for the ranks in missing.
func (g *group) interrupted(rank int, k *call, why error, missing []int) *failure {
	me := g.ranks[rank]
	switch why {
	case errWorldFailed:
		return g.w.first
	case ErrDeadline:
		return g.w.fail(failure{missing[0], fmt.Errorf("%w: %s did not come to %s within %v",
			ErrDeadline, listRanks(missing), k.describe(g.ranks), g.w.opts.Deadline)})
	}
	return g.w.fail(failure{me, fmt.Errorf("rank %d stopped in %s: %w", me, k.describe(g.ranks), why)})
}

// stuck follows the chain of ranks that wait for each other from a message of
// rank, and describes it if no rank on it can ever go on: it closes, or it ends
// at a rank that waits in a collective for all.
func (g *group) stuck(rank int) error {
	chain := make([]int, 0, 8) // on the stack: most chains are short
	for r := rank; ; r = g.busy[r].peer {
		k := g.busy[r]
		if k == nil || k.served {
			return nil
		}
		closed := slices.Contains(chain, r)
		if !closed {
			chain = append(chain, r)
		}
		if closed || !k.isMessage() {
			break
		}
	}
	if len(chain) < 2 {
		return nil
	}
	slices.Sort(chain)
	said := make([]string, len(chain))
	for i, r := range chain {
		said[i] = g.said(r, g.busy[r])
	}
	return fmt.Errorf("%w: %s: each waits for another", ErrMismatch, strings.Join(said, ", "))
}

// said is "rank 2 called barrier".
func (g *group) said(rank int, k *call) string {
	return fmt.Sprintf("rank %d called %s", g.ranks[rank], k.describe(g.ranks))
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
		if r == rank || !k.isMessage() || k.peer == rank {
			g.needsLeft(world, k)
			return
		}
	}
	for _, child := range g.children {
		child.leave(world)
	}
}

// listRanks is "rank 3" or "ranks 1, 3".
func listRanks(ranks []int) string {
	if len(ranks) == 1 {
		return fmt.Sprintf("rank %d", ranks[0])
	}
	s := make([]string, len(ranks))
	for i, r := range ranks {
		s[i] = fmt.Sprint(r)
	}
	return "ranks " + strings.Join(s, ", ")
}
