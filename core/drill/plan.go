package drill

import (
	"cmp"
	"slices"

	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Cut is a way to split a world: the color and key of a rank of size.
type Cut struct{ Color, Key func(rank, size int) int }

// Cuts are the splits of a drill of a world: neighbours apart, halves in reverse order,
// and all ranks but the first, which joins none; of vast worlds the last one alone at
// the lowest level.
func Cuts(size, level int) []Cut {
	zero := func(int, int) int { return 0 }
	all := []Cut{
		{func(r, _ int) int { return r % 2 }, zero},
		{func(r, n int) int { return 2 * r / n }, func(r, _ int) int { return -r }},
		{func(r, _ int) int { return min(r, 1) - 1 }, zero},
	}
	if level <= 0 && size >= vast {
		return all[2:]
	}
	return all
}

// Group is the new group of a rank under the cut of the given ranks, nil if it
// joins none.
func (c Cut) Group(ranks []int, rank int) []int {
	n := len(ranks)
	color := c.Color(slices.Index(ranks, rank), n)
	if color < 0 {
		return nil
	}
	var members []int // indices in ranks
	for i := range ranks {
		if c.Color(i, n) == color {
			members = append(members, i)
		}
	}
	slices.SortStableFunc(members, func(a, b int) int { return cmp.Compare(c.Key(a, n), c.Key(b, n)) })
	for i, m := range members {
		members[i] = ranks[m]
	}
	return members
}

// Iterations is how often a level repeats the whole list, with new inputs.
func Iterations(level int) int { return [...]int{1, 3, 10}[min(max(level, 0), 2)] }

// long is longer than a buffer of 4096 elements through which vectors may pass, longer
// than one of 16384 or a few of fewer.
const long, longer = 4097, 16384 + 27

// wide is the size of groups from which the lowest level takes fewer sizes: there
// are many ranks, roots and pairs in them.
const wide = 9

// vast is the size of groups in which the lowest level shows that a sum of so many is
// right, and every other collective once: roots, pairs and splits are those of smaller
// ones.
const vast = 24

// counts are the sizes of a level in a group of n: empty, one, around n, not
// divisible, and, in the first iteration, long.
func counts(n, level, iteration int) []int {
	if level <= 0 && n >= wide {
		return []int{0, n - 1, n + 1}
	}
	c := []int{0, 1, n - 1, n, n + 1, 3*n + 2, 67}
	if level >= 1 {
		c = append(c, 1000, long)
	}
	if level >= 2 && iteration == 0 {
		c = append(c, 65537, 1<<18+3)
	}
	slices.Sort(c)
	return slices.Compact(c)
}

// Plan lists the records, without results, that a drill gives on one rank of a
// world. Levels: 0 quick, 1 thorough, 2 also long vectors, many iterations.
func Plan(size, rank int, seed uint64, level int) []Record {
	world := make([]int, size)
	for r := range world {
		world[r] = r
	}
	var all []Record
	for it := range Iterations(level) {
		all = append(all, Steps(world, rank, seed, it, level)...)
		for _, c := range Cuts(size, level) {
			if group := c.Group(world, rank); group != nil {
				all = append(all, Split(group, rank, it))
				all = append(all, Steps(group, rank, seed, it, level)...)
			}
		}
	}
	return all
}

// Split is the record of a split that gave group.
func Split(group []int, rank, iteration int) Record {
	return Record{Op: names.OpSplit, Rank: rank, Group: group, Peer: -1, Reduction: kernels.Sum.String(), Input: Integer, Iteration: iteration}
}

// planner collects the operations of one group in which one rank takes part.
type planner struct {
	base  Record
	seed  uint64
	step  uint64 // counts all operations of the group, so that ranks agree on seeds
	steps []Record
}

// Steps lists a rank's operations on one group.
func Steps(group []int, rank int, seed uint64, iteration, level int) []Record {
	p := &planner{
		steps: make([]Record, 0, 512), // about as many as most have
		base:  Record{Rank: rank, Group: group, Peer: -1, Reduction: kernels.Sum.String(), Input: Integer, Iteration: iteration},
		seed:  hash(seed, uint64(iteration), uint64(len(group)), uint64(group[0])),
	}
	if level <= 0 && len(group) >= vast {
		p.brief(len(group) + 1)
		return p.steps
	}
	for _, n := range counts(len(group), level, iteration) {
		p.reductions(n)
		p.moves(n)
		p.others(n)
	}
	p.pairs(3*len(group) + 2)
	if iteration == 0 {
		p.long()
	}
	return p.steps
}

// add gives the operation its seed and keeps it if this rank takes part.
func (p *planner) add(takesPart bool, set func(*Record)) {
	p.step++
	if !takesPart {
		return
	}
	r := p.base
	r.Seed = hash(p.seed, p.step)
	set(&r)
	p.steps = append(p.steps, r)
}

// reductions are AllReduce and ReduceScatter of n elements.
func (p *planner) reductions(n int) {
	for _, in := range []struct {
		kind Input
		op   kernels.Op
	}{{Integer, kernels.Sum}, {Order, kernels.Sum}, {Integer, kernels.Max}, {Order, kernels.Max}} {
		p.add(true, func(r *Record) {
			r.Op, r.Count, r.Input, r.Reduction, r.InPlace = names.OpAllReduce, n, in.kind, in.op.String(), true
		})
		p.parts(n, func(r *Record) {
			r.Op, r.Input, r.Reduction = names.OpReduceScatter, in.kind, in.op.String()
		})
	}
}

// parts adds the variants of an operation on a vector and its parts.
func (p *planner) parts(n int, set func(*Record)) {
	for _, bounds := range [][]int{nil, lopsided(n, len(p.base.Group))} {
		for _, inPlace := range []bool{false, true} {
			p.add(true, func(r *Record) {
				r.Count, r.Bounds, r.InPlace = n, bounds, inPlace
				set(r)
			})
		}
	}
}

// lopsided gives the last rank most elements and some of the others none.
func lopsided(n, size int) []int {
	b := make([]int, size+1)
	for i := 1; i < size; i++ {
		b[i] = min(i/2, n)
	}
	b[size] = n
	return b
}

// moves are AllGather, Broadcast from every root, and messages of n elements
// between neighbours.
func (p *planner) moves(n int) {
	p.parts(n, func(r *Record) { r.Op = names.OpAllGather })
	group := p.base.Group
	for _, root := range group {
		p.add(true, func(r *Record) { r.Op, r.Count, r.Peer, r.InPlace = names.OpBroadcast, n, root, true })
	}
	for i, from := range group {
		to := group[(i+1)%len(group)]
		if from == to {
			continue
		}
		for range 2 { // two, so that their order shows
			p.message(from, to, n)
			p.message(to, from, n)
		}
	}
}

// brief are the collectives of n elements with one root, and a message.
func (p *planner) brief(n int) {
	group := p.base.Group
	first, last := group[0], group[len(group)-1]
	p.reductions(n)
	p.parts(n, func(r *Record) { r.Op = names.OpAllGather })
	p.add(true, func(r *Record) { r.Op, r.Count, r.Peer, r.InPlace = names.OpBroadcast, n, last, true })
	p.message(last, first, n)
	p.others(n)
}

// pairs are messages of n elements both ways between all ranks that moves takes for
// no neighbours.
func (p *planner) pairs(n int) {
	group := p.base.Group
	for i, a := range group {
		for j := i + 2; j < len(group) && j-i < len(group)-1; j++ {
			p.message(a, group[j], n)
			p.message(group[j], a, n)
		}
	}
}

// long has long vectors once in every operation on tensors: a level has all of those
// below it.
func (p *planner) long() {
	group := p.base.Group
	first, last := group[0], group[len(group)-1]
	if first != 0 || last == 0 || last != len(group)-1 { // one world is enough
		return
	}
	p.add(true, func(r *Record) { r.Op, r.Count, r.InPlace = names.OpAllReduce, long, true })
	p.add(true, func(r *Record) { r.Op, r.Count, r.Input, r.InPlace = names.OpAllReduce, long, Order, true })
	p.add(true, func(r *Record) { r.Op, r.Count, r.Input = names.OpReduceScatter, long, Order })
	p.add(true, func(r *Record) {
		r.Op, r.Count, r.Bounds = names.OpReduceScatter, long, lopsided(long, len(group))
	})
	p.add(true, func(r *Record) { r.Op, r.Count = names.OpAllGather, long })
	p.add(true, func(r *Record) { r.Op, r.Count, r.Peer, r.InPlace = names.OpBroadcast, long, last, true })
	p.message(last, first, long)
	if len(group) == 3 {
		p.longer(first, last)
	}
}

// longer has vectors of several chunks in every operation, wherever its result lies
// and however its parts are cut. One size of a world shows it.
func (p *planner) longer(first, last int) {
	for _, in := range []struct {
		kind Input
		op   kernels.Op
	}{{Integer, kernels.Sum}, {Order, kernels.Sum}, {Integer, kernels.Max}} {
		p.add(true, func(r *Record) {
			r.Op, r.Count, r.Input, r.Reduction, r.InPlace = names.OpAllReduce, longer, in.kind, in.op.String(), true
		})
	}
	p.parts(longer, func(r *Record) { r.Op = names.OpReduceScatter })
	p.add(true, func(r *Record) { r.Op, r.Count, r.Input = names.OpReduceScatter, longer, Order })
	p.add(true, func(r *Record) {
		r.Op, r.Count, r.Reduction, r.InPlace = names.OpReduceScatter, longer, kernels.Max.String(), true
	})
	p.parts(longer, func(r *Record) { r.Op = names.OpAllGather })
	p.add(true, func(r *Record) { r.Op, r.Count, r.Peer, r.InPlace = names.OpBroadcast, longer, first, true })
	p.add(true, func(r *Record) { r.Op, r.Count, r.Peer, r.InPlace = names.OpBroadcast, longer, last, true })
	p.message(first, last, longer)
	p.message(last, first, longer)
	p.add(true, func(r *Record) { r.Op, r.Count = names.OpAllReduceInt, longer })
	p.add(true, func(r *Record) { r.Op, r.Count = names.OpAllGatherBytes, longer })
}

// message is one message; both sides have one seed.
func (p *planner) message(from, to, n int) {
	me := p.base.Rank
	p.add(me == from || me == to, func(r *Record) {
		r.Op, r.Count, r.Peer, r.InPlace = names.OpSend, n, to, true
		if me == to {
			r.Op, r.Peer = names.OpRecv, from
		}
	})
}

// others are the collectives without tensors.
func (p *planner) others(n int) {
	for _, op := range []kernels.Op{kernels.Sum, kernels.Max} {
		p.add(true, func(r *Record) { r.Op, r.Count, r.Reduction = names.OpAllReduceInt, n, op.String() })
	}
	p.add(true, func(r *Record) { r.Op, r.Count = names.OpAllGatherBytes, min(n, long) })
	p.add(true, func(r *Record) { r.Op = names.OpBarrier })
}
