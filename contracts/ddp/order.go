package ddp

import (
	"fmt"
	"maps"
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// ordered is clause 5: all ranks of a communicator issue the same sequence of
// collectives, those of the plan.
func ordered(p *contract.Pass, r *evidence.Run) {
	all := map[string]issued{} // by communicator
	for rank := range r.Header.World {
		type place struct {
			step  int
			group names.Axis
		}
		found := map[place]int{}
		for e := range r.Events(rank, trace.KindComm) {
			if e.Op == names.OpSend || e.Op == names.OpRecv {
				continue // counted per pair of ranks
			}
			found[place{e.Step, e.Group}]++
			found[place{e.Step, ""}]++ // in whatever group
			c := communicator(e)
			if all[c] == nil {
				all[c] = issued{}
			}
			all[c].add(p, c, e)
		}
		first := r.First
		if first == 0 {
			first = -1 // what is loaded need not be broadcast
		}
		before, during := least(r, rank, -1), least(r, rank, 0)
		for step := first; step < r.Steps; step++ {
			due := during
			if step < 0 {
				due = before
			}
			for group, n := range due {
				p.Count(n, found[place{step, group}])
			}
		}
	}
	for _, c := range slices.Sorted(maps.Keys(all)) {
		all[c].compare(p, r, c)
	}
	for rank := range r.Header.World {
		foreseen(p, r, rank)
	}
	for _, group := range []names.Axis{names.World, names.DP} {
		r.Sizes(p, group)
	}
}

// least is what a rank issues at the least in each group: at the start one
// broadcast per unit, unless every rank builds its own shard; in every step a sum
// of token counts, the reductions of gradients and the sum of squares of the
// norm; and, where tensors are split, two sums per block in each direction.
func least(r *evidence.Run, rank, step int) map[names.Axis]int {
	plan, units, blocks := &r.Config.Plan, 0, 0
	for _, l := range r.Layouts(rank) {
		blocks += l.Part.Layers.Len()
		for _, u := range l.Units {
			if u.Hi <= l.Weights {
				units++
			}
		}
	}
	if step < 0 {
		if plan.Zero == 3 {
			units = 0
		}
		return map[names.Axis]int{names.DP: units}
	}
	reductions := 0
	for _, o := range due(r, rank) {
		reductions += len(o.elements)
	}
	out := map[names.Axis]int{names.DP: reductions + 1, names.World: 1}
	if r.Header.World == plan.DP {
		// One group may serve for both: a trainer need not have two.
		out = map[names.Axis]int{"": reductions + 2}
	}
	if plan.TP > 1 {
		out[names.TP] = 4 * blocks * plan.MicroBatches
	}
	return out
}

// communicator names that of an operation: a group with its ranks may have a
// second one, for operations beside the computation, which counts by itself.
func communicator(e trace.Event) string {
	s := fmt.Sprintf("%s of ranks %v", e.Group, e.Ranks)
	if e.Overlap {
		s += " beside the computation"
	}
	return s
}

// issued holds what each rank issued on one communicator, by the operation's
// number.
type issued map[int]map[uint64]trace.Event

// add notes an operation. Two of one number are of two communicators, whose
// orders cannot be told from each other.
func (g issued) add(p *contract.Pass, c string, e trace.Event) {
	if g[e.Rank] == nil {
		g[e.Rank] = map[uint64]trace.Event{}
	}
	if _, twice := g[e.Rank][e.Seq]; twice {
		p.Doubt("group %s: rank %d has two operations of number %d, as of two communicators recorded as one", c, e.Rank, e.Seq)
		return
	}
	g[e.Rank][e.Seq] = e
}

// compare goes through the numbers until ranks differ; what follows is the
// consequence.
func (g issued) compare(p *contract.Pass, r *evidence.Run, c string) {
	ranks := slices.Sorted(maps.Keys(g))
	last := map[int]uint64{}
	for _, rank := range ranks {
		contiguous(p, r, c, rank, g[rank])
		for seq := range g[rank] {
			last[rank] = max(last[rank], seq)
		}
	}
	for seq := uint64(0); ; seq++ {
		byRank, more := map[string][]int{}, false
		for _, rank := range ranks {
			e, ok := g[rank][seq]
			more = more || ok
			if !ok && last[rank] < seq && !r.Ended(rank) {
				continue // its run was stopped before, or what it recorded is cut off
			}
			byRank[describe(e)] = append(byRank[describe(e)], rank)
		}
		if !more {
			return
		}
		if len(byRank) > 1 {
			g.disorder(p, r, c, seq, byRank)
			return
		}
	}
}

// describe is what must agree between ranks.
func describe(e trace.Event) string {
	of := ""
	switch {
	case e.Op == "":
		return "nothing"
	case e.Unit != "":
		of = " of " + e.Unit
	}
	if e.Op == names.OpAllGatherBytes { // each rank gives what it has
		return fmt.Sprintf("%s%s (step %d)", e.Op, of, e.Step)
	}
	return fmt.Sprintf("%s%s (%d elements, step %d)", e.Op, of, e.Count, e.Step)
}

// contiguous reports the first number that a rank left out.
func contiguous(p *contract.Pass, r *evidence.Run, c string, rank int, ops map[uint64]trace.Event) {
	for i, seq := range slices.Sorted(maps.Keys(ops)) {
		if seq != uint64(i) {
			p.At(rank, ops[seq].Step).In(r.Moment(ops[seq])).Report(nil, nil, "group %s: rank %d has operation %d but not %d", c, rank, seq, i)
			return
		}
	}
}

// disorder blames the smaller party, or, if they are equal, the one without the
// lowest rank.
func (g issued) disorder(p *contract.Pass, r *evidence.Run, c string, seq uint64, byRank map[string][]int) {
	var common string
	for what, ranks := range byRank {
		if most := byRank[common]; len(ranks) > len(most) || len(ranks) == len(most) && ranks[0] < most[0] {
			common = what
		}
	}
	for _, what := range slices.Sorted(maps.Keys(byRank)) {
		ranks := byRank[what]
		if what == common {
			continue
		}
		e, ok := g[ranks[0]][seq]
		if !ok {
			e = g[byRank[common][0]][seq]
		}
		p.At(ranks[0], e.Step).In(r.Moment(e)).Report(what, common, "group %s, operation %d: ranks %v issued %s; ranks %v %s", c, seq, ranks, what, byRank[common], common)
	}
}
