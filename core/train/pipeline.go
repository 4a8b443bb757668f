package train

import (
	"context"
	"errors"

	"github.com/lockstep-ml/lockstep/core/parallel"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// pipeline runs the micro-batches by the plan's schedule.
func (r *rank) pipeline(context.Context, []parallel.Item) error { return errors.New("pipeline") }

// live records how many micro-batches have activations on this rank.
func (r *rank) live(step int) {
	n := 0
	for _, c := range r.chunks {
		n += len(c.held)
	}
	if r.mesh.PP.Size() > 1 {
		r.log.Record(trace.Event{Kind: trace.KindLive, Step: step, Count: int64(n)})
	}
}
