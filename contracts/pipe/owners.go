package pipe

import (
	"maps"
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// chunks maps the names of a rank's units to the chunks of the plan that have
// them.
func chunks(r *evidence.Run, rank int) map[string]int {
	out := map[string]int{}
	for i, l := range r.Layouts(rank) {
		for _, u := range l.Units {
			out[u.Name] = i
		}
	}
	return out
}

// owned is clause 1.
func owned(p *contract.Pass, r *evidence.Run) {
	r.Apart(p)
	for _, ranks := range r.Along(names.PP) {
		ran(p, r, ranks)
	}
	holders := r.Held()
	for _, t := range r.Sources {
		held(p, r, holders[t.Name], t.Name)
	}
}

// ran checks that every unit ran over every micro-batch on its stage and nowhere
// else.
func ran(p *contract.Pass, r *evidence.Run, ranks []int) {
	found := map[evidence.Phase][]int{}
	until := map[int]int{} // by rank: the step in which what it recorded breaks off
	for _, rank := range ranks {
		until[rank] = brokeOff(r, rank)
		for e := range r.Events(rank, trace.KindPhase) {
			found[evidence.PhaseOf(e)] = append(found[evidence.PhaseOf(e)], rank)
		}
	}
	for _, rank := range ranks {
		units := slices.Sorted(maps.Keys(chunks(r, rank)))
		for _, b := range r.MicroBatches() {
			for _, what := range []string{trace.Forward, trace.Backward} {
				others := r.Told(rank, b.Step, trace.KindPhase) || slices.ContainsFunc(units, func(u string) bool {
					return slices.Contains(found[evidence.Phase{MicroBatch: b, Unit: u, What: what}], rank)
				}) && b.Step < until[rank]
				for _, u := range units {
					k := evidence.Phase{MicroBatch: b, Unit: u, What: what}
					onStage(p, k, rank, found[k], others)
					delete(found, k)
				}
			}
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(found), evidence.Phase.Compare) {
		p.At(found[k][0], k.Step).Of(k.Unit).In(moment(k)).Report(nil, nil,
			"%s pass of %s over micro-batch %d, which no stage of the plan has, on ranks %v", k.What, k.Unit, k.Micro, found[k])
	}
}

// brokeOff is the step in which a rank's run ended early; beyond any where it did not.
func brokeOff(r *evidence.Run, rank int) int {
	if r.Ended(rank) {
		return r.Config.Steps
	}
	last := -1
	for _, e := range r.Ranks[rank] {
		last = max(last, e.Step)
	}
	return last
}

// moment is when in its step a pass is.
func moment(k evidence.Phase) (contract.Phase, int) {
	if k.What == trace.Backward {
		return contract.Backward, 0
	}
	return contract.Forward, 0
}

// onStage judges who ran one unit. Where the owner ran other units of the pass,
// this one is missing in the run and not merely in the evidence, unless the run ended
// early in that step.
func onStage(p *contract.Pass, k evidence.Phase, owner int, ranks []int, others bool) {
	p.Count(1, len(ranks))
	if missing := len(ranks) == 0 && !others; missing || slices.Equal(ranks, []int{owner}) {
		return
	}
	p.At(owner, k.Step).Of(k.Unit).In(moment(k)).Report(ranks, []int{owner},
		"%s pass of %s over micro-batch %d ran on ranks %v; the plan gives the unit to rank %d alone",
		k.What, k.Unit, k.Micro, ranks, owner)
}

// held checks that a parameter's initial weights lie on its stage alone. The
// last stage has a copy of a tied embedding, as its head.
func held(p *contract.Pass, r *evidence.Run, holders []evidence.Holding, name string) {
	holds := func(rank int) bool {
		_, ok := r.Digest(rank, r.First-1, trace.Weight, name, 0)
		return ok
	}
	stages := map[int]bool{} // of the plan: whether a holder recorded the weights
	for _, h := range holders {
		stages[h.At.PP] = stages[h.At.PP] || holds(h.Rank)
	}
	for _, recorded := range stages {
		p.Found(recorded) // in whatever order
	}
	for rank := range r.Header.World {
		stage := r.At(rank).PP
		if _, planned := stages[stage]; !planned && holds(rank) {
			p.At(rank, r.First-1).Of(name).Report(nil, nil, "rank %d on stage %d holds weights that the plan gives to another stage", rank, stage)
		}
	}
}
