// Package waits finds ranks that wait for each other: from who waits for whom in
// which operation, and nothing else. It holds values alone, so that it does not
// matter how a run carries its operations, or who gathers what its ranks say.
package waits

import (
	"cmp"
	"slices"

	"github.com/lockstep-ml/lockstep/core/names"
)

// Meeting is an operation that ranks come to: a collective of a group, or a
// message from one rank to another.
type Meeting struct {
	Name   string     // the operation and what it moves: "all-reduce of block.1"
	Size   string     // how much it moves, in words; empty where nothing counts
	Group  names.Axis // which of the ranks' groups; empty where nobody says
	Beside bool       // of the group's second communicator, beside the computation
	Ranks  []int      // of the group, in the world
	Seq    uint64     // its number in the group, or of the messages from sender to receiver
	Step   int        // optimizer step; -1 before the first
	// From and To are the sender and the receiver of a message; both -1 for a
	// collective.
	From, To int
}

// same reports whether two ranks speak of one meeting.
func (m *Meeting) same(o *Meeting) bool {
	return m.Group == o.Group && m.Beside == o.Beside && m.Seq == o.Seq && m.From == o.From && m.To == o.To && slices.Equal(m.Ranks, o.Ranks)
}

// Wait is what a goroutine of a rank waits for.
type Wait struct {
	// Meeting is the operation that it has come to; nil where it waits for the
	// functions of the rank's own queue.
	Meeting *Meeting
	For     []int // world ranks that have not come to the meeting
	Queue   bool  // the goroutine is the rank's queue
}

// Rank is what the goroutines of a rank do.
type Rank struct {
	ID    int
	Busy  bool // some goroutine of it goes on
	Ended bool
	Waits []Wait
}

// Absence is a meeting that never happens.
type Absence struct {
	Meeting *Meeting
	Came    []int // ranks that wait in it, sorted
	Missing []int // ranks that will never come, sorted
	Queue   bool  // those that wait in it do so with their queues
}

// Deadlock says why ranks can never go on.
type Deadlock struct {
	// Missed are the meetings that never happen, the likely cause first: the earliest
	// step; a message before a collective, in which others wait for one of the two;
	// then the one to which most ranks came.
	Missed []Absence
	// Ranks are all that were given, by ID.
	Ranks []Rank
}

// Find is the deadlock of ranks, nil where every rank that has not ended may
// still go on. A rank that is not among them, or waits for nothing, may do anything. A rank goes on if
// one of its goroutines does, and whoever goes on may come to any operation: so
// what is found is certain, whatever the ranks would have done next.
func Find(ranks []Rank) *Deadlock {
	g := graph{}
	for i := range ranks {
		g[ranks[i].ID] = &node{Rank: &ranks[i], free: !ranks[i].Ended && (ranks[i].Busy || len(ranks[i].Waits) == 0)}
	}
	for g.spread() {
	}
	d := &Deadlock{Ranks: slices.Clone(ranks)}
	slices.SortFunc(d.Ranks, func(a, b Rank) int { return cmp.Compare(a.ID, b.ID) })
	for i := range d.Ranks {
		if r := &d.Ranks[i]; !g[r.ID].free {
			d.add(g, r)
		}
	}
	if len(d.Missed) == 0 && !d.idle(g) {
		return nil
	}
	slices.SortStableFunc(d.Missed, likelier)
	return d
}

// graph is the ranks by ID.
type graph map[int]*node

// node is a rank, and whether it may still go on.
type node struct {
	*Rank
	free bool
}

// spread frees the ranks that those which are free may free, and reports whether
// there were any.
func (g graph) spread() (more bool) {
	for _, n := range g {
		if n.free || n.Ended {
			continue
		}
		if slices.ContainsFunc(n.Waits, func(w Wait) bool { return w.Meeting != nil && !slices.ContainsFunc(w.For, g.gone) }) {
			n.free, more = true, true
		}
	}
	return more
}

// gone reports whether a rank will never come to anything again.
func (g graph) gone(rank int) bool {
	n, known := g[rank]
	return known && !n.free
}

// add notes the meetings that a rank waits in for ever.
func (d *Deadlock) add(g graph, r *Rank) {
	for _, w := range r.Waits {
		if w.Meeting == nil {
			continue
		}
		i := slices.IndexFunc(d.Missed, func(a Absence) bool { return a.Meeting.same(w.Meeting) })
		if i < 0 {
			a := Absence{Meeting: w.Meeting, Queue: w.Queue}
			for _, rank := range w.For {
				if g.gone(rank) {
					a.Missing = append(a.Missing, rank)
				}
			}
			slices.Sort(a.Missing)
			d.Missed, i = append(d.Missed, a), len(d.Missed)
		}
		if a := &d.Missed[i]; !slices.Contains(a.Came, r.ID) {
			a.Came = append(a.Came, r.ID)
		}
	}
}

// idle reports whether a rank waits for its own queue, which has nothing to do.
func (d *Deadlock) idle(g graph) bool {
	return slices.ContainsFunc(d.Ranks, func(r Rank) bool { return !g[r.ID].free && len(r.Waits) > 0 })
}

// likelier orders meetings that never happen, the likely cause first.
func likelier(a, b Absence) int {
	return cmp.Or(
		cmp.Compare(a.Meeting.Step, b.Meeting.Step),
		-cmp.Compare(a.Meeting.From, -1)+cmp.Compare(b.Meeting.From, -1),
		-cmp.Compare(len(a.Came), len(b.Came)),
		cmp.Compare(len(a.Missing), len(b.Missing)),
	)
}

// either reports whether two meetings are as likely to be the cause.
func (d *Deadlock) either() bool { return len(d.Missed) > 1 && likelier(d.Missed[0], d.Missed[1]) == 0 }

// Absent are the ranks that did not come to the meeting which is the likely
// cause. It is empty where two meetings are as likely: then each rank waits for
// another one that did not come, and nothing tells who is right.
func (d *Deadlock) Absent() []int {
	if len(d.Missed) == 0 || d.either() {
		return nil
	}
	return d.Missed[0].Missing
}
