package ddp

import (
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/contracts/sharding"
	"github.com/lockstep-ml/lockstep/core/names"
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
// over its data-parallel group. A step that has other reductions shows that this
// one is missing in the run and not merely in the evidence.
func reductions(p *contract.Pass, r *evidence.Run, rank int) {
	type key struct {
		step  int
		label string
	}
	found, steps := map[key][]trace.Event{}, map[int]bool{}
	operations := due(r, rank)
	for e := range r.Events(rank, trace.KindComm) {
		if e.Group == names.DP && (e.Op == names.OpAllReduce || e.Op == names.OpReduceScatter) &&
			slices.ContainsFunc(operations, func(o operation) bool { return o.label == e.Unit }) {
			found[key{e.Step, e.Unit}] = append(found[key{e.Step, e.Unit}], e)
			steps[e.Step] = true
		}
	}
	for step := range r.Config.Steps {
		for _, o := range operations {
			want, ops := len(o.elements), found[key{step, o.label}]
			p.Count(want, len(ops))
			if len(ops) > want || len(ops) < want && steps[step] && ended(r, rank, step) {
				p.At(rank, step).Report(len(ops), want, "the gradient of unit %s was reduced %d times on rank %d, not %d", o.label, len(ops), rank, want)
			}
			o.judge(p, r, rank, ops)
		}
	}
}

// ended reports whether a rank finished a step: it then had reduced everything.
func ended(r *evidence.Run, rank, step int) bool {
	_, ok := r.Scalar(rank, step, trace.Norm)
	return ok
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
