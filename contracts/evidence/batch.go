package evidence

import (
	"cmp"

	"github.com/lockstep-ml/lockstep/core/trace"
)

// MicroBatch is one of a rank's micro-batches in a step.
type MicroBatch struct{ Step, Micro int }

// Compare orders by step, then by micro-batch.
func (b MicroBatch) Compare(o MicroBatch) int {
	return cmp.Or(cmp.Compare(b.Step, o.Step), cmp.Compare(b.Micro, o.Micro))
}

// MicroBatches lists those that the plan gives to every rank.
func (r *Run) MicroBatches() []MicroBatch {
	var out []MicroBatch
	for step := r.First; step < r.Steps; step++ {
		for micro := range r.Config.Plan.MicroBatches {
			out = append(out, MicroBatch{step, micro})
		}
	}
	return out
}

// Phase is a unit's pass over a micro-batch. What is trace.Forward or
// trace.Backward.
type Phase struct {
	MicroBatch
	Unit, What string
}

// PhaseOf is what an event of kind phase is about.
func PhaseOf(e trace.Event) Phase { return Phase{MicroBatch{e.Step, e.Micro}, e.Unit, e.What} }

// Compare orders by micro-batch, unit and direction.
func (k Phase) Compare(o Phase) int {
	return cmp.Or(k.MicroBatch.Compare(o.MicroBatch), cmp.Compare(k.Unit, o.Unit), cmp.Compare(k.What, o.What))
}

// PerWorker is the number of micro-batches that a logical worker's sequences are
// cut into.
func (r *Run) PerWorker() int {
	return r.Config.Plan.MicroBatches / (r.Workers / r.Config.Plan.DP)
}

// WorkerOf is the logical worker of a data-parallel rank's micro-batch, and the
// micro-batch's place among the worker's. ok is false where the plan has no such
// micro-batch.
func (r *Run) WorkerOf(dp, micro int) (worker, place int, ok bool) {
	workers, per := r.Config.Plan.RankWorkers(r.Config.Model, dp), r.PerWorker()
	if micro < 0 || micro >= per*len(workers) {
		return 0, 0, false
	}
	return workers[micro/per], micro % per, true
}
