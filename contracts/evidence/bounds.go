package evidence

import (
	"fmt"

	"github.com/lockstep-ml/lockstep/core/trace"
)

// Beyond says which event is of a step after the last that the header claims, "" where
// none is: then that claim is wrong, and what the plan has in the steps is not known.
// What became of a checkpoint is judged by itself.
func (r *Run) Beyond() string {
	for e := range r.All {
		if after(&e, r.Config.Steps) && e.Kind != trace.KindStored && e.Kind != trace.KindFile {
			return late(&e, r.Config.Steps)
		}
	}
	return ""
}

// after reports whether an event is of none of as many steps; a run may go on where
// they end.
func after(e *trace.Event, steps int) bool {
	return e.Step > steps || e.Step == steps && e.Kind != trace.KindResume
}

func late(e *trace.Event, steps int) string {
	return fmt.Sprintf("rank %d recorded a %s event in step %d, of steps 0 to %d", e.Rank, e.Kind, e.Step, steps-1)
}

// Torn says in what the ranks' records of a checkpoint that the run goes on from
// contradict each other or the spec, "" where they do not: one rank has one and another
// has none, or two; they name other steps or counts; or none has one although the spec
// says that the state that is gone on from is recorded. Then it is not known where the
// run begins.
func (r *Run) Torn() string {
	var said, silent []int // ranks
	var first trace.Event
	for rank := range r.Header.World {
		n := 0
		for e := range r.Events(rank, trace.KindResume) {
			if n++; n > 1 {
				return fmt.Sprintf("rank %d goes on from a checkpoint twice, at steps %d and %d", rank, first.Step, e.Step)
			}
			if len(said) == 0 {
				first = e
			}
			if e.Step != first.Step || e.Count != first.Count {
				return fmt.Sprintf("rank %d goes on at step %d after %d optimizer steps, rank %d at step %d after %d",
					rank, e.Step, e.Count, first.Rank, first.Step, first.Count)
			}
			said = append(said, rank)
		}
		if _, left := r.Ranks[rank]; left && n == 0 {
			silent = append(silent, rank)
		}
	}
	switch {
	case len(said) > 0 && len(silent) > 0:
		return fmt.Sprintf("rank %d goes on from a checkpoint at step %d after %d optimizer steps, rank %d from none", said[0], first.Step, first.Count, silent[0])
	case len(said) == 0 && r.Config.Recording.Start:
		return "evidence.start is for a run that goes on from a checkpoint, and no rank says at which step"
	}
	return ""
}
