package ddp

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// reduced is clause 3: every logical worker's gradient enters exactly one
// reduction per unit and step, over exactly the ranks that replicate the unit,
// and reductions are issued while the backward pass still runs.
func reduced(p *contract.Pass) {
	r, ok := read(p, contract.Test)
	if !ok {
		return
	}
	leaves(p, r)
	if r.Header.World < 2 {
		return // one rank's partial sum is the whole
	}
	for rank := range r.Header.World {
		reductions(p, r, rank)
		overlap(p, r, rank)
	}
}

// leaf is one worker's gradient of one unit in one step.
type leaf struct {
	step, worker int
	unit         string
}

// leaves checks that each worker with sequences enters the sum once, on the
// rank that computes it, and no other worker at all.
func leaves(p *contract.Pass, r *evidence.Run) {
	found := map[leaf][]int{} // ranks
	for rank := range r.Header.World {
		for e := range r.Events(rank, trace.KindLeaf) {
			k := leaf{e.Step, e.Worker, e.Unit}
			found[k] = append(found[k], rank)
		}
	}
	for step := range r.Config.Steps {
		for _, u := range r.Units {
			for w := range r.Workers {
				k := leaf{step, w, u.Name}
				if r.Busy(w) {
					p.Expect(1)
				}
				checkLeaf(p, r, k, found[k])
				delete(found, k)
			}
		}
	}
	alien := slices.SortedFunc(maps.Keys(found), func(a, b leaf) int {
		return cmp.Or(cmp.Compare(a.step, b.step), cmp.Compare(a.worker, b.worker), cmp.Compare(a.unit, b.unit))
	})
	for _, k := range alien {
		p.Report(contract.Finding{Rank: found[k][0], Step: k.step, Index: -1,
			Message: fmt.Sprintf("a gradient of unit %s and logical worker %d, which the plan does not have, entered the sum", k.unit, k.worker)})
	}
}

func checkLeaf(p *contract.Pass, r *evidence.Run, k leaf, ranks []int) {
	p.Saw(min(1, len(ranks)))
	want := 1
	if !r.Busy(k.worker) {
		want = 0
	}
	switch {
	case len(ranks) > want:
		p.Report(contract.Finding{Rank: ranks[len(ranks)-1], Step: k.step, Index: -1, Got: fmt.Sprint(len(ranks)), Want: fmt.Sprint(want),
			Message: fmt.Sprintf("the gradient of unit %s of logical worker %d entered the sum %d times (ranks %v), not %d", k.unit, k.worker, len(ranks), ranks, want)})
	case len(ranks) == 1 && ranks[0] != r.Owner(k.worker):
		p.Report(contract.Finding{Rank: ranks[0], Step: k.step, Index: -1,
			Message: fmt.Sprintf("the gradient of unit %s of logical worker %d entered the sum of rank %d; the plan gives the worker to rank %d", k.unit, k.worker, ranks[0], r.Owner(k.worker))})
	}
}

// reductions checks that a rank reduced each unit once per step, whole, with
// all ranks. A step that has the reductions of other units shows that this one
// is missing in the run and not merely in the evidence.
func reductions(p *contract.Pass, r *evidence.Run, rank int) {
	found := map[leaf][]trace.Event{}
	for e := range r.Events(rank, trace.KindComm) {
		if e.Op == comm.OpAllReduce && slices.ContainsFunc(r.Units, func(u evidence.Unit) bool { return u.Name == e.Unit }) {
			k := leaf{step: e.Step, unit: e.Unit}
			found[k] = append(found[k], e)
		}
	}
	for step := range r.Config.Steps {
		any := slices.ContainsFunc(r.Units, func(u evidence.Unit) bool { return found[leaf{step: step, unit: u.Name}] != nil })
		for _, u := range r.Units {
			p.Expect(1)
			ops := found[leaf{step: step, unit: u.Name}]
			p.Saw(min(1, len(ops)))
			if len(ops) > 1 || len(ops) == 0 && any && ended(r, rank, step) {
				p.Report(contract.Finding{Rank: rank, Step: step, Index: -1, Got: fmt.Sprint(len(ops)), Want: "1",
					Message: fmt.Sprintf("the gradient of unit %s was reduced %d times on rank %d, not once", u.Name, len(ops), rank)})
			}
			for _, e := range ops {
				checkReduction(p, r, u, e)
			}
		}
	}
}

// ended reports whether a rank finished a step: it then had reduced everything.
func ended(r *evidence.Run, rank, step int) bool {
	_, ok := r.Scalar(rank, step, trace.Norm)
	return ok
}

func checkReduction(p *contract.Pass, r *evidence.Run, u evidence.Unit, e trace.Event) {
	all := everyRank(r.Header.World)
	if ranks := slices.Sorted(slices.Values(e.Ranks)); !slices.Equal(ranks, all) {
		p.Report(contract.Finding{Rank: e.Rank, Step: e.Step, Index: -1, Got: fmt.Sprint(e.Ranks), Want: fmt.Sprint(all),
			Message: fmt.Sprintf("the gradient of unit %s was reduced over ranks %v; ranks %v replicate it", u.Name, e.Ranks, all)})
	}
	if e.Count != u.Len {
		p.Report(contract.Finding{Rank: e.Rank, Step: e.Step, Index: -1, Got: fmt.Sprint(e.Count), Want: fmt.Sprint(u.Len),
			Message: fmt.Sprintf("the reduction of unit %s moved %d of its %d elements", u.Name, e.Count, u.Len)})
	}
}

func everyRank(world int) []int {
	out := make([]int, world)
	for i := range out {
		out[i] = i
	}
	return out
}

// overlap checks that all block reductions but one were issued before the last
// backward event of the step. A rank whose last worker has no sequences
// computes nothing that could overlap.
func overlap(p *contract.Pass, r *evidence.Run, rank int) {
	walk := r.Config.Plan.RankWorkers(r.Config.Model, rank)
	if !r.Busy(walk[len(walk)-1]) {
		return
	}
	issued, early := make([]int, r.Config.Steps), make([]int, r.Config.Steps)
	passes := make([]int, r.Config.Steps)
	for _, e := range r.Ranks[rank] {
		if e.Step < 0 || e.Step >= r.Config.Steps {
			continue
		}
		switch {
		case e.Kind == trace.KindPhase && e.What == trace.Backward:
			passes[e.Step]++
			early[e.Step] = issued[e.Step]
		case e.Kind == trace.KindIssue && strings.HasPrefix(e.Unit, blockPrefix):
			issued[e.Step]++
		}
	}
	want := r.Config.Model.Layers - 1
	for step := range r.Config.Steps {
		p.Expect(1)
		if passes[step] == 0 || issued[step] <= want {
			continue
		}
		p.Saw(1)
		if early[step] < want {
			p.Report(contract.Finding{Rank: rank, Step: step, Index: -1, Got: fmt.Sprint(early[step]), Want: fmt.Sprintf("at least %d", want),
				Message: fmt.Sprintf("rank %d issued %d block reductions before its backward pass ended, at least %d can be", rank, early[step], want)})
		}
	}
}

// blockPrefix begins the unit names of blocks.
var blockPrefix = strings.TrimSuffix(model.BlockUnit(0), "0")
