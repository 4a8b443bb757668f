package ddp

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// ordered is clause 5: all ranks of a group issue the same sequence of
// collectives.
func ordered(p *contract.Pass) {
	r, ok := read(p, contract.Test)
	if !ok {
		return
	}
	// What every rank issues at the least: one broadcast per unit at the start,
	// one reduction per unit and one sum of token counts in every step.
	least := func(step int) int {
		if step < 0 {
			return broadcasts(r)
		}
		return len(r.Units) + 1
	}
	groups := map[string]issued{}
	for rank := range r.Header.World {
		steps := map[int]int{}
		for e := range r.Events(rank, trace.KindComm) {
			if e.Op == comm.OpSend || e.Op == comm.OpRecv {
				continue // counted per pair of ranks
			}
			steps[e.Step]++
			key := fmt.Sprintf("%s of ranks %v", e.Group, e.Ranks)
			if groups[key] == nil {
				groups[key] = issued{}
			}
			if groups[key][rank] == nil {
				groups[key][rank] = map[uint64][]trace.Event{}
			}
			groups[key][rank][e.Seq] = append(groups[key][rank][e.Seq], e)
		}
		for step := -1; step < r.Config.Steps; step++ {
			p.Expect(least(step))
			p.Saw(min(least(step), steps[step]))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		groups[key].compare(p, key)
	}
}

// broadcasts is the number of units that have weights of their own.
func broadcasts(r *evidence.Run) int {
	units := map[string]bool{}
	for _, t := range r.Params {
		units[t.Unit] = true
	}
	return len(units)
}

// issued holds what each rank issued in one group, by the operation's number. A
// number may occur several times: a second communicator of the same ranks, for
// reductions beside the computation, counts by itself.
type issued map[int]map[uint64][]trace.Event

// compare goes through the numbers until ranks differ; what follows is the
// consequence.
func (g issued) compare(p *contract.Pass, group string) {
	ranks := evidence.Ranks(g)
	for _, rank := range ranks {
		contiguous(p, group, g[rank])
	}
	for seq := uint64(0); ; seq++ {
		byRank := map[string][]int{}
		more := false
		for _, rank := range ranks {
			more = more || len(g[rank][seq]) > 0
			what := describe(g[rank][seq])
			byRank[what] = append(byRank[what], rank)
		}
		if !more {
			return
		}
		if len(byRank) > 1 {
			g.disorder(p, group, seq, byRank)
			return
		}
	}
}

// describe is what must agree between ranks.
func describe(ops []trace.Event) string {
	var out []string
	for _, e := range ops {
		of := ""
		if e.Unit != "" {
			of = " of " + e.Unit
		}
		out = append(out, fmt.Sprintf("%s%s (%d elements, step %d)", e.Op, of, e.Count, e.Step))
	}
	if len(out) == 0 {
		return "nothing"
	}
	slices.Sort(out)
	return strings.Join(out, " and ")
}

// contiguous reports a number that a rank left out: every communicator counts
// from 0, so no number occurs more often than the one before it.
func contiguous(p *contract.Pass, group string, ops map[uint64][]trace.Event) {
	for _, seq := range slices.Sorted(maps.Keys(ops)) {
		if seq > 0 && len(ops[seq-1]) < len(ops[seq]) {
			e := ops[seq][0]
			p.Report(contract.Finding{Rank: e.Rank, Step: e.Step, Index: -1,
				Message: fmt.Sprintf("group %s: rank %d has %d operations of number %d but %d of number %d", group, e.Rank, len(ops[seq]), seq, len(ops[seq-1]), seq-1)})
			return
		}
	}
}

// disorder blames the smaller party, or, if they are equal, the one without the
// lowest rank.
func (g issued) disorder(p *contract.Pass, group string, seq uint64, byRank map[string][]int) {
	var common string
	for what, ranks := range byRank {
		if c := byRank[common]; len(ranks) > len(c) || len(ranks) == len(c) && ranks[0] < c[0] {
			common = what
		}
	}
	for _, what := range slices.Sorted(maps.Keys(byRank)) {
		ranks := byRank[what]
		if what == common {
			continue
		}
		here, there := g[ranks[0]][seq], g[byRank[common][0]][seq]
		got, want := less(here, there), less(there, here)
		f := contract.Finding{Rank: ranks[0], Step: -1, Index: -1, Got: describe(got), Want: describe(want),
			Message: fmt.Sprintf("group %s, operation %d: ranks %v issued %s; ranks %v %s", group, seq, ranks, describe(got), byRank[common], describe(want))}
		if ops := append(got, want...); len(ops) > 0 {
			f.Step = ops[0].Step
		}
		p.Report(f)
	}
}

// less is a without the operations that b has as well.
func less(a, b []trace.Event) (out []trace.Event) {
	b = slices.Clone(b)
	for _, e := range a {
		one := describe([]trace.Event{e})
		if i := slices.IndexFunc(b, func(x trace.Event) bool { return describe([]trace.Event{x}) == one }); i >= 0 {
			b = slices.Delete(b, i, i+1)
		} else {
			out = append(out, e)
		}
	}
	return out
}
