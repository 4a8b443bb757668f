// Package train wires model, plan, optimizer and data into ranks, runs the
// optimizer steps and records the history.
package train

import (
	"time"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/optim"
	"github.com/lockstep-ml/lockstep/core/parallel"
	"github.com/lockstep-ml/lockstep/core/schedule"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Parts are the makers of what a run is built from, each called once per rank.
// Nil fields other than Backend mean "as is". Faults attach here, from outside:
// production code has no switch for them.
type Parts struct {
	// Backend makes rank's backend. Ranks may share one.
	Backend func(rank int) (kernels.Backend, error)
	// Comm decorates each of rank's communicators, outside the recorded one;
	// group says which it is. The data-parallel group has two,
	// one of which works beside the computation.
	Comm func(rank int, group names.Axis, c comm.Communicator) comm.Communicator
	// Optimizer decorates rank's optimizer.
	Optimizer func(rank int, o optim.Optimizer) optim.Optimizer
	// Source decorates rank's data.
	Source func(rank int, s Source) Source
	// Schedule changes the pipeline schedule that rank follows.
	Schedule func(rank int, s schedule.Schedule) schedule.Schedule
	// Segments changes how rank cuts the state of each of its model parts over
	// the data-parallel ranks.
	Segments func(rank int, segs []parallel.Segment) []parallel.Segment
	// Updater decorates the owner of each of rank's model parts.
	Updater func(rank int, u parallel.Updater) parallel.Updater
	// Counter changes how many optimizer steps rank believes to have taken,
	// after each step, also one that was skipped.
	Counter func(rank, taken int) int
	// spec.Config changes what this rank believes the configuration to be; the
	// history's header keeps the true one.
	Config func(rank int, c spec.Config) spec.Config
	// Checkpoints says where state is stored and loaded.
	Checkpoints Checkpoints
	// Deadline bounds how long an operation waits for a peer; 0 is an hour: a
	// peer of this process that ends or fails is noticed at once, and one that
	// computes may take long.
	Deadline time.Duration
	// Keep, where not nil, says which events are kept in the history.
	Keep func(trace.Event) bool
	// Progress is called after every step by the first rank of the last stage,
	// which has the loss; nil for none.
	Progress func(Progress)
}

// defaultDeadline is Parts.Deadline's default.
const defaultDeadline = time.Hour

// Source gives a rank its sequences.
type Source interface {
	// Sequences returns the sequences of a logical worker in a step, and their
	// ids (-1 for padding).
	Sequences(step, worker, workers int) ([]data.Sequence, []int64)
}

// Progress is what a run tells after each step.
type Progress struct {
	Step, Steps int
	Loss        float64
	Norm        float64
	Tokens      int64 // valid tokens of the step
	Elapsed     time.Duration
	Skipped     bool
}
