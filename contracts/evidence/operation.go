package evidence

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// call is one operation of a communicator, that of all its ranks; a message also has
// its two sides.
type call struct {
	group    names.Axis
	ranks    string
	overlap  bool
	seq      uint64
	from, to int
}

// callOf is the operation that an event is one rank's record of.
func callOf(e *trace.Event) call {
	c := call{group: e.Group, ranks: fmt.Sprint(e.Ranks), overlap: e.Overlap, seq: e.Seq}
	switch e.Op {
	case names.OpSend:
		c.from, c.to = e.Rank+1, e.Peer+1
	case names.OpRecv:
		c.from, c.to = e.Peer+1, e.Rank+1
	}
	return c
}

// Sizes reports the operations of a group's communicators whose numbers contradict
// each other: a range of other than count elements, a root or partner outside of the
// group, bytes that are not the rank's share of what the operation sends, and bytes
// that all ranks of the group together did not move. What is not said is not judged,
// nor is an operation that ended in an error.
func (r *Run) Sizes(p *contract.Pass, group names.Axis) {
	calls := map[call][]*trace.Event{}
	for rank := range r.Header.World {
		for i := range r.Ranks[rank] {
			if e := &r.Ranks[rank][i]; e.Kind == trace.KindComm && e.Group == group {
				c := callOf(e)
				calls[c] = append(calls[c], e)
				r.size(p, e)
			}
		}
	}
	for _, c := range slices.SortedFunc(maps.Keys(calls), call.compare) {
		all := calls[c]
		slices.SortStableFunc(all, func(a, b *trace.Event) int { return cmp.Compare(a.Rank, b.Rank) })
		if i := twice(all); i > 0 {
			p.Doubt("%s: rank %d has two operations of number %d, as of two communicators recorded as one", title(all[i]), all[i].Rank, c.seq)
			continue
		}
		r.moved(p, all)
	}
}

func (c call) compare(o call) int {
	n := 0
	if c.overlap != o.overlap {
		n = 1
		if o.overlap {
			n = -1
		}
	}
	return cmp.Or(cmp.Compare(c.group, o.group), cmp.Compare(c.ranks, o.ranks), n, cmp.Compare(c.from, o.from), cmp.Compare(c.to, o.to), cmp.Compare(c.seq, o.seq))
}

// twice is the first record of an operation that has the rank of the one before; 0
// where there is none.
func twice(all []*trace.Event) int {
	for i := 1; i < len(all); i++ {
		if all[i].Rank == all[i-1].Rank && all[i].Text == "" && all[i-1].Text == "" {
			return i
		}
	}
	return 0
}

// size judges what one rank recorded of an operation by itself.
func (r *Run) size(p *contract.Pass, e *trace.Event) {
	place := slices.Index(e.Ranks, e.Rank)
	if e.Text != "" || place < 0 {
		return
	}
	report := func(got, want any, format string, args ...any) {
		p.At(e.Rank, e.Step).In(r.Moment(*e)).Report(got, want, "%s: %s", title(e), fmt.Sprintf(format, args...))
	}
	if e.Hi != 0 && e.Hi-e.Lo != e.Count {
		report(e.Hi-e.Lo, e.Count, "its range is [%d,%d), its size %d elements", e.Lo, e.Hi, e.Count)
	}
	if rooted(e.Op) && !slices.Contains(e.Ranks, e.Peer) {
		report(e.Peer, nil, "rank %d is none of the group of ranks %v", e.Peer, e.Ranks)
	}
	if own := share(e.Op, e.Count, place, len(e.Ranks)); e.Bytes != 0 && e.Bytes != own {
		report(e.Bytes, own, "rank %d sent %d bytes, its share of %d elements among %d ranks is %d", e.Rank, e.Bytes, e.Count, len(e.Ranks), own)
	}
}

func title(e *trace.Event) string {
	s := fmt.Sprintf("group %s of ranks %v, %s", e.Group, e.Ranks, e.Op)
	if e.Unit != "" {
		s += " of " + e.Unit
	}
	return s
}

// rooted reports whether an operation has a root or a partner.
func rooted(op string) bool {
	return op == names.OpBroadcast || op == names.OpSend || op == names.OpRecv
}

// share is what the rank at a place of a group sends of what an operation does: the
// total is spread evenly, the first ranks take the remainder; a message is its
// sender's.
func share(op string, count int64, place, size int) int64 {
	total := names.WireBytes(op, count, size)
	if op == names.OpSend {
		return total
	}
	own := total / int64(size)
	if int64(place) < total%int64(size) {
		own++
	}
	return own
}

// moved judges what the ranks counted as an operation moved it, where all of them
// recorded it. A star moves more: all passes through one rank.
func (r *Run) moved(p *contract.Pass, all []*trace.Event) {
	e, sum := all[0], int64(0)
	ranks := len(e.Ranks)
	if e.Op == names.OpSend || e.Op == names.OpRecv {
		ranks = 2
	}
	for _, x := range all {
		if x.Text != "" || x.Moved < 0 || x.Count != e.Count || !rooted(x.Op) && x.Op != e.Op {
			return
		}
		sum += x.Moved
	}
	op := e.Op
	if op == names.OpRecv {
		op = names.OpSend
	}
	want := names.WireBytes(op, e.Count, len(e.Ranks))
	star := r.Config.Plan.Comm == names.Star && sum > want
	if len(all) != ranks || sum == 0 || sum == want || star {
		return
	}
	p.At(e.Rank, e.Step).In(r.Moment(*e)).Report(sum, want, "%s: its ranks counted %d bytes as they moved, %d elements are %d", title(e), sum, e.Count, want)
}
