package ddp

import (
	"fmt"
	"maps"
	"slices"

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
	units := len(r.Units)
	p.Expect(r.Header.World * (broadcasts(r) + r.Config.Steps*(units+1)))
	groups := map[string]map[int][]trace.Event{}
	for rank := range r.Header.World {
		for e := range r.Events(rank, trace.KindComm) {
			if e.Op == comm.OpSend || e.Op == comm.OpRecv {
				continue // counted per pair of ranks
			}
			p.Saw(1)
			key := fmt.Sprint(e.Ranks)
			if groups[key] == nil {
				groups[key] = map[int][]trace.Event{}
			}
			groups[key][rank] = append(groups[key][rank], e)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		sequences(p, key, groups[key])
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

// sequences compares the operations of one group, rank by rank.
func sequences(p *contract.Pass, group string, ops map[int][]trace.Event) {
	ranks := evidence.Ranks(ops)
	for _, rank := range ranks {
		contiguous(p, group, ops[rank])
	}
	for i := 0; ; i++ {
		byRank := map[string][]int{}
		more := false
		for _, rank := range ranks {
			what := "nothing more"
			if i < len(ops[rank]) {
				more, what = true, operation(ops[rank][i])
			}
			byRank[what] = append(byRank[what], rank)
		}
		if !more {
			return
		}
		if len(byRank) > 1 {
			disorder(p, group, i, byRank, ops)
			return // what follows is the consequence
		}
	}
}

// operation is what must agree between ranks.
func operation(e trace.Event) string {
	unit := e.Unit
	if unit != "" {
		unit = " of " + unit
	}
	return fmt.Sprintf("%s%s of %d elements in step %d", e.Op, unit, e.Count, e.Step)
}

// contiguous reports numbers of operations that are missing or used twice. A
// group that was made anew begins with 0.
func contiguous(p *contract.Pass, group string, ops []trace.Event) {
	for i, e := range ops {
		if i > 0 && e.Seq != ops[i-1].Seq+1 && e.Seq != 0 {
			p.Report(contract.Finding{Rank: e.Rank, Step: e.Step, Index: -1, Got: fmt.Sprint(e.Seq), Want: fmt.Sprint(ops[i-1].Seq + 1),
				Message: fmt.Sprintf("group of ranks %s: operation %d of rank %d follows operation %d", group, e.Seq, e.Rank, ops[i-1].Seq)})
			return
		}
	}
}

// disorder blames the smaller party.
func disorder(p *contract.Pass, group string, i int, byRank map[string][]int, ops map[int][]trace.Event) {
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
		f := contract.Finding{Rank: ranks[0], Step: -1, Index: -1, Got: what, Want: common,
			Message: fmt.Sprintf("group of ranks %s, operation %d: ranks %v issued %s, ranks %v %s", group, i, ranks, what, byRank[common], common)}
		if i < len(ops[ranks[0]]) {
			f.Step = ops[ranks[0]][i].Step
		}
		p.Report(f)
	}
}
