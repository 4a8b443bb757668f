package evidence

import (
	"fmt"
	"slices"

	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// Unplanned says in what the history contradicts the plan that its own header names,
// "" where it does not: passes, reductions and gathers that the plan does not have, or
// has and the record of a finished step lacks although it has others; operations out of
// their numbers; buffers and memory of other sizes than the layout's; copies that count
// twice; sums of squares that are not those of the elements. Such a record was changed
// or lost something, and no clause can say what. A kind of which a rank recorded
// nothing is not judged here: whoever needs it misses it.
//
// Other trainers record what clauses ask for and may leave out the rest, and have other
// buffers: only a record that counts its memory, as those of this module do, is held
// against everything that they have.
func (r *Run) Unplanned() string {
	ofRank, ofRun := []func(int) string{r.operations}, []func() string(nil)
	if r.Some(trace.KindMemory) {
		ofRank = []func(int) string{r.passes, r.reductions, r.gathers, r.operations, r.buffers, r.allocated}
		ofRun = []func() string{r.silent, r.countedTwice, r.squared}
	}
	for rank := range r.Header.World {
		for _, check := range ofRank {
			if why := check(rank); why != "" {
				return "the run's record is not that of its plan: " + why
			}
		}
	}
	for _, check := range ofRun {
		if why := check(); why != "" {
			return "the run's record is not that of its plan: " + why
		}
	}
	return ""
}

// Regular are the kinds of events of which every rank of a run records some, if any rank
// does, whatever the spec asks for.
func Regular() []trace.Kind {
	return []trace.Kind{trace.KindSpan, trace.KindPhase, trace.KindIssue, trace.KindMemory}
}

// Some reports whether any rank recorded an event of a kind.
func (r *Run) Some(kind trace.Kind) bool {
	for rank := range r.Header.World {
		if r.some(rank, kind) {
			return true
		}
	}
	return false
}

// silent says which rank recorded nothing of a kind that others did.
func (r *Run) silent() string {
	for _, kind := range Regular() {
		for rank := range r.Header.World {
			if r.Finished(rank, r.First) && !r.some(rank, kind) && r.Some(kind) {
				return fmt.Sprintf("rank %d recorded no %s event, other ranks did", rank, kind)
			}
		}
	}
	return ""
}

// unitsOf lists the units of a rank's parts.
func (r *Run) unitsOf(rank int) (out []string) {
	for _, l := range r.Layouts(rank) {
		for _, u := range l.Units {
			out = append(out, u.Name)
		}
	}
	return out
}

// some reports whether a rank recorded an event of a kind.
func (r *Run) some(rank int, kind trace.Kind) bool {
	for range r.Events(rank, kind) {
		return true
	}
	return false
}

// passes holds the passes of a rank, each unit over each micro-batch once forward and
// once backward, against the plan.
func (r *Run) passes(rank int) string {
	units := r.unitsOf(rank)
	if !r.some(rank, trace.KindPhase) {
		return ""
	}
	for step := r.First; step < r.Steps; step++ {
		found := map[Phase]bool{}
		for e := range r.In(step, rank, trace.KindPhase) {
			k := PhaseOf(e)
			worker, _, ok := r.WorkerOf(r.At(rank).DP, e.Micro)
			switch {
			case !ok || !slices.Contains(units, e.Unit):
				return fmt.Sprintf("rank %d has no %s pass of unit %s over micro-batch %d, and recorded one in step %d", rank, e.What, e.Unit, e.Micro, step)
			case worker != e.Worker:
				return fmt.Sprintf("micro-batch %d of rank %d is logical worker %d's, the %s pass of unit %s in step %d says %d's", e.Micro, rank, worker, e.What, e.Unit, step, e.Worker)
			case found[k]:
				return fmt.Sprintf("rank %d recorded the %s pass of unit %s over micro-batch %d twice in step %d", rank, e.What, e.Unit, e.Micro, step)
			}
			found[k] = true
		}
		if want := 2 * len(units) * r.Config.Plan.MicroBatches; r.Finished(rank, step) && len(found) != want {
			return fmt.Sprintf("rank %d recorded %d passes in step %d, the plan has %d", rank, len(found), step, want)
		}
	}
	return ""
}

// reductions holds what a rank handed to its communicator against the plan: every unit
// once in a step, in stages 2 and 3 of ZeRO once for each logical worker.
func (r *Run) reductions(rank int) string {
	if !r.some(rank, trace.KindIssue) {
		return ""
	}
	units, want := r.unitsOf(rank), 1
	if r.Config.Plan.Zero >= 2 {
		want = r.Workers / r.Config.Plan.DP
	}
	for step := r.First; step < r.Steps; step++ {
		found := map[string]int{}
		for e := range r.In(step, rank, trace.KindIssue) {
			if found[e.Unit]++; !slices.Contains(units, e.Unit) {
				return fmt.Sprintf("rank %d handed over a reduction of unit %s in step %d, which it does not have", rank, e.Unit, step)
			}
		}
		for _, u := range units {
			if n := found[u]; n > want || n < want && r.Finished(rank, step) {
				return fmt.Sprintf("rank %d handed over %d reductions of unit %s in step %d, the plan has %d", rank, n, u, step, want)
			}
		}
	}
	return ""
}

// gathers holds the micro-batches of what became of gathered weights against the passes
// around it: weights are gathered and used before a pass and released behind one.
func (r *Run) gathers(rank int) string {
	if !r.some(rank, trace.KindPhase) {
		return ""
	}
	var before []trace.Event // of the next pass
	var last *trace.Event
	for i := range r.Ranks[rank] {
		e := &r.Ranks[rank][i]
		switch {
		case e.Step < r.First:
		case e.Kind == trace.KindPhase:
			for _, g := range before {
				if g.Step == e.Step && g.Micro != e.Micro {
					return fmt.Sprintf("rank %d recorded %s of unit %s for micro-batch %d in step %d, before a pass over %d", rank, g.What, g.Unit, g.Micro, g.Step, e.Micro)
				}
			}
			before, last = before[:0], e
		case e.Kind != trace.KindGather:
		case e.What != names.Release:
			before = append(before, *e)
		case last != nil && last.Step == e.Step && last.Micro != e.Micro:
			return fmt.Sprintf("rank %d recorded release of unit %s for micro-batch %d in step %d, behind a pass over %d", rank, e.Unit, e.Micro, e.Step, last.Micro)
		}
	}
	return ""
}
