package ddp

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/contracts/sharding"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// reduced is clause 3: every logical worker's gradient enters exactly one
// reduction per unit and step, over exactly the ranks that replicate the unit,
// and reductions are issued while the backward pass still runs.
func reduced(p *contract.Pass, r *evidence.Run) {
	leaves(p, r)
	if r.Config.Plan.DP < 2 {
		return // one rank's partial sum is the whole
	}
	for rank := range r.Header.World {
		reductions(p, r, rank)
		for _, x := range r.Early(rank) {
			p.At(rank, x.Step).Of(x.Unit).In(contract.Backward, 0).Report(nil, nil,
				"the gradient of unit %s was reduced on rank %d before that of logical worker %d was complete", x.Unit, rank, x.Worker)
		}
		overlap(p, r, rank)
	}
}

// operation is what a rank reduces by the plan: elements per operation on what
// the operations are labelled with.
type operation struct {
	label    string
	op       string
	elements []int64 // ascending
}

// due lists the reductions of a rank in a step, of all its model parts.
func due(r *evidence.Run, rank int) []operation {
	var out []operation
	for _, l := range r.Layouts(rank) {
		zero := sharding.Of(r.Config.Plan, r.Config.Model, &l, len(r.Moments()))
		for _, c := range zero.Traffic() {
			if !c.Gradient {
				continue
			}
			i := slices.IndexFunc(out, func(o operation) bool { return o.label == c.Label })
			if i < 0 {
				i = len(out)
				out = append(out, operation{label: c.Label, op: c.Op})
			}
			o := &out[i]
			o.elements = append(o.elements, slices.Repeat([]int64{int64(c.Elements)}, c.Times)...)
			slices.Sort(o.elements)
		}
	}
	return out
}

// reductions checks that a rank reduced what the plan says in each step, whole,
// over its data-parallel group. A step of which everything is recorded shows that
// one is missing in the run and not merely in the evidence.
func reductions(p *contract.Pass, r *evidence.Run, rank int) {
	type key struct {
		step  int
		label string
	}
	found := map[key][]trace.Event{}
	operations := due(r, rank)
	for e := range r.Events(rank, trace.KindComm) {
		if e.Group == names.DP && (e.Op == names.OpAllReduce || e.Op == names.OpReduceScatter) &&
			slices.ContainsFunc(operations, func(o operation) bool { return o.label == e.Unit }) {
			found[key{e.Step, e.Unit}] = append(found[key{e.Step, e.Unit}], e)
		}
	}
	for step := r.First; step < r.Steps; step++ {
		for _, o := range operations {
			want, ops := len(o.elements), found[key{step, o.label}]
			p.Count(want, len(ops))
			if len(ops) > want || len(ops) < want && r.Told(rank, step, trace.KindComm) {
				p.At(rank, step).Report(len(ops), want, "the gradient of unit %s was reduced %d times on rank %d, not %d", o.label, len(ops), rank, want)
			}
			o.judge(p, r, rank, ops)
		}
	}
}

// judge checks who took part in each operation and how much it moved.
func (o *operation) judge(p *contract.Pass, r *evidence.Run, rank int, ops []trace.Event) {
	group := r.Config.Plan.Dims().Group(rank, names.DP)
	var moved []int64
	for _, e := range ops {
		moved = append(moved, e.Count)
		at := p.At(rank, e.Step)
		if ranks := slices.Sorted(slices.Values(e.Ranks)); !slices.Equal(ranks, group) {
			at.Report(e.Ranks, group, "the gradient of unit %s was reduced over ranks %v; ranks %v replicate it", o.label, e.Ranks, group)
		}
		if e.Op != o.op {
			at.Report(e.Op, o.op, "the gradient of unit %s was reduced by %s, not %s", o.label, e.Op, o.op)
		}
	}
	slices.Sort(moved)
	for i := range min(len(moved), len(o.elements)) {
		if moved[i] != o.elements[i] && len(moved) == len(o.elements) {
			p.At(rank, ops[0].Step).Report(moved[i], o.elements[i], "a reduction of unit %s moved %d of its %d elements", o.label, moved[i], o.elements[i])
		}
	}
}

// leaf is one worker's gradient of one unit in one step.
type leaf struct {
	step, worker int
	unit         string
}

// leaves checks that each worker with sequences enters the sum once on every
// rank that computes it (one per slice of the unit), and no other worker at all.
func leaves(p *contract.Pass, r *evidence.Run) {
	found := map[leaf][]int{} // ranks
	for rank := range r.Header.World {
		for e := range r.Events(rank, trace.KindLeaf) {
			k := leaf{e.Step, e.Worker, e.Unit}
			found[k] = append(found[k], rank)
		}
	}
	holders := r.Holders()
	for step := r.First; step < r.Steps; step++ {
		for _, unit := range slices.Sorted(maps.Keys(holders)) {
			at := map[int][]int{} // holders by data-parallel rank
			for _, rank := range holders[unit] {
				at[r.At(rank).DP] = append(at[r.At(rank).DP], rank)
			}
			for w := range r.Workers {
				k := leaf{step, w, unit}
				k.check(p, r, at[r.Owner(w)], found[k])
				delete(found, k)
			}
		}
	}
	alien := slices.SortedFunc(maps.Keys(found), func(a, b leaf) int {
		return cmp.Or(cmp.Compare(a.step, b.step), cmp.Compare(a.worker, b.worker), cmp.Compare(a.unit, b.unit))
	})
	for _, k := range alien {
		p.At(found[k][0], k.step).Report(nil, nil, "a gradient of unit %s and logical worker %d, which the plan does not have, entered the sum", k.unit, k.worker)
	}
}

// check compares the ranks on which a worker's gradient entered the sum with
// those that hold the unit and compute the worker, if that has sequences.
func (k leaf) check(p *contract.Pass, r *evidence.Run, want, ranks []int) {
	if !r.Busy(k.worker) {
		want = nil
	}
	p.Expect(len(want))
	for i, rank := range ranks { // ascending
		at := p.At(rank, k.step)
		switch {
		case len(want) == 0:
			at.Report(nil, nil, "a gradient of unit %s of logical worker %d, which has no sequence, entered the sum of rank %d", k.unit, k.worker, rank)
		case !slices.Contains(want, rank):
			at.Report(nil, nil, "the gradient of unit %s of logical worker %d entered the sum of rank %d; the plan gives the worker to rank %d", k.unit, k.worker, rank, want[0])
		case i > 0 && ranks[i-1] == rank:
			at.Report(nil, nil, "the gradient of unit %s of logical worker %d entered the sum of rank %d more than once", k.unit, k.worker, rank)
		default:
			p.Saw(1)
		}
	}
	for _, rank := range want {
		if !slices.Contains(ranks, rank) && r.Told(rank, k.step, trace.KindLeaf) {
			p.At(rank, k.step).Report(nil, nil, "the gradient of unit %s of logical worker %d did not enter the sum of rank %d", k.unit, k.worker, rank)
		}
	}
}

// overlap checks that all block reductions of a rank but one were issued before
// its last backward pass of the step ended. A rank whose last worker has no
// sequences computes nothing that could overlap, and stage 1 by elements reduces
// the whole vector once it is complete.
func overlap(p *contract.Pass, r *evidence.Run, rank int) {
	cfg := &r.Config
	walk := cfg.Plan.RankWorkers(cfg.Model, r.At(rank).DP)
	if cfg.Plan.Zero == 1 && cfg.Plan.Shard == plan.ShardFlat || !r.Busy(walk[len(walk)-1]) {
		return
	}
	issued, early, passes := make([]int, r.Len()), make([]int, r.Len()), make([]int, r.Len())
	for _, e := range r.Ranks[rank] {
		step := e.Step - r.First
		if step < 0 || step >= r.Len() {
			continue
		}
		switch {
		case e.Kind == trace.KindPhase && e.What == trace.Backward:
			passes[step]++
			early[step] = issued[step]
		case e.Kind == trace.KindIssue && evidence.IsBlock(e.Unit):
			issued[step]++
		}
	}
	want := blockReductions(r, rank, len(walk)) - 1
	for step := range r.Len() {
		if p.Found(passes[step] > 0 && issued[step] > want) && early[step] < want {
			p.At(rank, r.First+step).Report(early[step], fmt.Sprintf("at least %d", want),
				"rank %d issued %d block reductions before its backward pass ended, at least %d can be", rank, early[step], want)
		}
	}
}

// blockReductions is how often a rank issues reductions of blocks in a step.
func blockReductions(r *evidence.Run, rank, workers int) int {
	n := 0
	for _, l := range r.Layouts(rank) {
		n += l.Part.Layers.Len()
	}
	if r.Config.Plan.Zero >= 2 {
		n *= workers // every round of workers
	}
	return n
}
