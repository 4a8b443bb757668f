// Package launch runs the ranks of a plan: it makes their backends,
// communicators and logs, starts them, and merges what they recorded. Here all
// are goroutines of this process.
package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/core/train"
	"github.com/lockstep-ml/lockstep/internal/guard"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Parts are what a run is made of; nil fields other than Backend mean the
// default.
type Parts struct {
	// Backend makes rank's backend; without one nothing runs. Ranks may share one.
	Backend func(rank int) (kernels.Backend, error)
	// World makes the communicators of all ranks, by rank; nil is comm.NewLocal.
	World comm.World
	// Deadline bounds how long an operation waits for a peer; 0 is an hour: a
	// peer of this process that ends or fails is noticed at once, and one that
	// computes may take long.
	Deadline time.Duration
	// Keep, where not nil, says which events are kept in the outcome.
	Keep func(trace.Event) bool
	// History, where not empty, is the directory that the ranks' whole histories are
	// written to while they run; what of a history cannot be written ends the run.
	History string

	train.Hooks
}

// Here lists the ranks of a world of a size that are on this host, which share its
// memory and threads: Local has all of them here.
func Here(size int) []int {
	out := make([]int, size)
	for r := range out {
		out[r] = r
	}
	return out
}

// defaultDeadline is Parts.Deadline's default.
const defaultDeadline = time.Hour

// Outcome is what a run came to.
type Outcome struct {
	// History holds every rank's events; after an error, up to it.
	History *trace.History
	Logs    []*trace.Log // the same, per rank, ready to be saved
	Loss    []float64    // mean loss of the valid tokens, per step
}

// Backends makes the backends of a world, by rank.
func (p *Parts) Backends(size int) ([]kernels.Backend, error) {
	if p.Backend == nil {
		return nil, errors.New("no backend is given to run on")
	}
	out := make([]kernels.Backend, size)
	for r := range out {
		var err error
		if out[r], err = p.Backend(r); err != nil {
			return nil, fmt.Errorf("backend of rank %d: %w", r, err)
		}
	}
	return out, nil
}

// Open makes the communicators of a world, by rank. Nothing decorates them.
func (p *Parts) Open(ctx context.Context, backends []kernels.Backend, o comm.Options) ([]comm.Communicator, error) {
	o.Deadline, o.Turns = cmp.Or(p.Deadline, o.Deadline), p.Turns
	if p.Turns != nil {
		o.Watch = nil // who gives turns sees when nobody can take one
	}
	return p.World.Open(ctx, len(backends), func(rank int) kernels.Backend { return backends[rank] }, o)
}

// Local trains cfg on text with all ranks of the plan as goroutines of this
// process. cfg is validated, the text's name and hash are filled in. When a
// rank fails all others end; the error is the *Failure of the rank that the others
// failed because of, and the outcome holds what was recorded.
func Local(ctx context.Context, cfg spec.Config, text data.Text, parts Parts) (*Outcome, error) {
	cfg.Text, cfg.TextHash = text.Name, text.Hash()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	set, err := cfg.Set(text)
	if err != nil {
		return nil, err
	}
	backends, err := parts.Backends(cfg.Plan.World())
	if err != nil {
		return nil, err
	}
	out := &Outcome{Logs: make([]*trace.Log, len(backends))}
	for r, be := range backends {
		out.Logs[r] = &trace.Log{Header: train.Header(cfg, r, be.Name()), Keep: parts.Keep}
	}
	watch := comm.NewWatch(len(backends))
	comms, err := parts.Open(ctx, backends, comm.Options{Algorithm: cfg.Plan.Comm, Deadline: defaultDeadline, Watch: watch})
	if err != nil {
		return nil, err
	}
	for r, c := range comms {
		comms[r] = comm.Recorded(c, func(rec comm.Record) { out.Logs[r].Record(train.Observe(rec)) })
	}
	ctx, files, err := record(ctx, parts.History, out.Logs)
	if err != nil {
		return nil, err
	}
	losses := make([][]float64, len(comms))
	err = each(ctx, parts.Turns, comms, func(ctx context.Context, rank int) (err error) {
		ctx = watch.Enter(ctx, rank)
		defer watch.Leave(ctx)
		losses[rank], err = train.Rank(ctx, cfg, set, comms[rank], backends[rank], out.Logs[rank], parts.Hooks)
		return err
	})
	err = files.close(err)
	out.Loss = losses[cfg.Plan.Dims().Rank(names.Coord{PP: cfg.Plan.Dims().PP - 1})]
	var merr error
	out.History, merr = trace.Merge(out.Logs)
	return out, errors.Join(err, merr)
}

// each runs every rank on a goroutine and gives the failure that the others
// follow from. The first one ends the context of all.
func each(ctx context.Context, turns comm.Turns, comms []comm.Communicator, run func(ctx context.Context, rank int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var failed failures
	rank := func(r int) {
		defer comms[r].Close()
		if err := guard.Do(func() error { return run(ctx, r) }); err != nil {
			cancel(failed.add(r, err))
		}
	}
	if turns != nil {
		turns.Run(len(comms), rank)
		return failed.cause()
	}
	var wg sync.WaitGroup
	for r := range comms {
		wg.Go(func() { rank(r) })
	}
	wg.Wait()
	return failed.cause()
}
