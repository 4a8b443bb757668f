package pipe

import (
	"cmp"
	"maps"
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// pipelines lists the ranks of every pipeline, stage by stage: one for each
// data- and tensor-parallel place.
func pipelines(r *evidence.Run) [][]int {
	var out [][]int
	for rank := range r.Header.World {
		if r.At(rank).PP == 0 {
			out = append(out, r.Config.Plan.Dims().Group(rank, names.PP))
		}
	}
	return out
}

// chunks maps unit names to the chunk of a stage that has them by the plan.
func chunks(r *evidence.Run, stage int) map[string]int {
	out := map[string]int{}
	for i, part := range r.Config.Plan.Parts(r.Config.Model, names.Coord{PP: stage}) {
		for _, u := range model.NewLayout(r.Config.Model, part).Units {
			out[u.Name] = i
		}
	}
	return out
}

// pass is a unit's pass over one micro-batch.
type pass struct {
	step, micro int
	unit, what  string
}

// owned is clause 1.
func owned(p *contract.Pass) {
	r, ok := subject.Read(p)
	if !ok {
		return
	}
	for _, ranks := range pipelines(r) {
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
	found := map[pass][]int{}
	for _, rank := range ranks {
		for e := range r.Events(rank, trace.KindPhase) {
			k := pass{e.Step, e.Micro, e.Unit, e.What}
			found[k] = append(found[k], rank)
		}
	}
	for stage, rank := range ranks {
		units := slices.Sorted(maps.Keys(chunks(r, stage)))
		for i := range r.Config.Steps * r.Config.Plan.MicroBatches {
			for _, what := range []string{trace.Forward, trace.Backward} {
				others := slices.ContainsFunc(units, func(u string) bool {
					return slices.Contains(found[pass{i / r.Config.Plan.MicroBatches, i % r.Config.Plan.MicroBatches, u, what}], rank)
				})
				for _, u := range units {
					k := pass{i / r.Config.Plan.MicroBatches, i % r.Config.Plan.MicroBatches, u, what}
					onStage(p, k, rank, found[k], others)
					delete(found, k)
				}
			}
		}
	}
	alien := slices.SortedFunc(maps.Keys(found), func(a, b pass) int {
		return cmp.Or(cmp.Compare(a.step, b.step), cmp.Compare(a.micro, b.micro), cmp.Compare(a.unit, b.unit), cmp.Compare(a.what, b.what))
	})
	for _, k := range alien {
		p.At(found[k][0], k.step).Of(k.unit).Report(nil, nil,
			"%s pass of %s over micro-batch %d, which no stage of the plan has, on ranks %v", k.what, k.unit, k.micro, found[k])
	}
}

// onStage judges who ran one unit. Where the owner ran other units of the pass,
// this one is missing in the run and not merely in the evidence.
func onStage(p *contract.Pass, k pass, owner int, ranks []int, others bool) {
	p.Count(1, len(ranks))
	if len(ranks) == 0 && !others || len(ranks) == 1 && ranks[0] == owner {
		return
	}
	p.At(owner, k.step).Of(k.unit).Report(ranks, []int{owner},
		"%s pass of %s over micro-batch %d ran on ranks %v; the plan gives the unit to rank %d alone", k.what, k.unit, k.micro, ranks, owner)
}

// held checks that a parameter's initial weights lie on its stage alone. The
// last stage has a copy of a tied embedding, as its head.
func held(p *contract.Pass, r *evidence.Run, holders []evidence.Holding, name string) {
	stages := map[int]bool{}
	for _, h := range holders {
		stages[h.At.PP] = true
	}
	p.Expect(len(stages))
	for rank := range r.Header.World {
		if _, ok := r.Digest(rank, -1, trace.Weight, name, 0); !ok {
			continue
		}
		if stage := r.At(rank).PP; !stages[stage] {
			p.At(rank, -1).Of(name).Report(nil, nil, "rank %d on stage %d holds weights that the plan gives to another stage", rank, stage)
		}
	}
	for stage := range stages {
		if slices.ContainsFunc(holders, func(h evidence.Holding) bool {
			_, ok := r.Digest(h.Rank, -1, trace.Weight, name, 0)
			return ok && h.At.PP == stage
		}) {
			p.Saw(1)
		}
	}
}
