// Package train is one rank of a run: it wires model, plan, optimizer and data
// together, takes the optimizer steps and records what happened. Where its peers
// are it does not know: package launch does.
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
	"github.com/lockstep-ml/lockstep/kernels"
)

// Hooks change a rank from outside, each called with the rank's number; nil
// fields mean "as is". Faults attach here: production code has no switch for
// them.
type Hooks struct {
	// Comm decorates each of rank's communicators, outside the recorded one;
	// group says which it is. The data-parallel group has two, one of which works
	// beside the computation.
	Comm func(rank int, group names.Axis, c comm.Communicator) comm.Communicator
	// Optimizer decorates rank's optimizer.
	Optimizer func(rank int, o optim.Optimizer) optim.Optimizer
	// Source decorates rank's data.
	Source func(rank int, s Source) Source
	// Schedule changes the pipeline schedule that rank follows.
	Schedule func(rank int, s schedule.Schedule) schedule.Schedule
	// Buckets changes how rank cuts the state of each of its model parts over
	// the data-parallel ranks.
	Buckets func(rank int, buckets []parallel.Bucket) []parallel.Bucket
	// Updater decorates the owner of each of rank's model parts.
	Updater func(rank int, u parallel.Updater) parallel.Updater
	// Counter changes how many optimizer steps rank believes to have taken,
	// after each step, also one that was skipped.
	Counter func(rank, taken int) int
	// Turns, where not nil, decides which goroutine of the run goes on when.
	Turns comm.Turns
	// Released is told of memory whose content rank gives up and that it keeps for
	// later use: loans, activations, buffers between stages.
	Released func(rank int, t kernels.Tensor)
	// Config changes what this rank believes the configuration to be; the
	// history's header keeps the true one.
	Config func(rank int, c spec.Config) spec.Config
	// Checkpoints says where state is stored and loaded.
	Checkpoints Checkpoints
	// Progress is called after every step by the first rank of the last stage,
	// which has the loss; nil for none.
	Progress func(Progress)
}

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
	LR          float64 // the step's learning rate
	Tokens      int64   // valid tokens of the step
	Elapsed     time.Duration
	Skipped     bool
}
