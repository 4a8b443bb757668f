// Package launch runs the ranks of a plan, or those that are in this process: it
// makes their backends, communicators and logs, starts them as goroutines, and merges
// what they recorded.
package launch

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
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
	// Ranks lists those of a world of a size that are in this process; nil is all, and
	// World gives the others no ends. Origin says where they are.
	Ranks  func(size int) []int
	Origin trace.Origin
	// Deadline bounds how long an operation waits for a peer; 0 is an hour: a
	// peer of this process that ends or fails is noticed at once, and one that
	// computes may take long.
	Deadline time.Duration
	// Keep, where not nil, says which events are kept in the outcome.
	Keep func(trace.Event) bool
	// Logs is given the log of each rank before anything is recorded; nil for none.
	Logs func(*trace.Log)
	// History, where not empty, is the directory that the whole histories of the ranks
	// here are written to while they run; what of a history cannot be written ends the
	// run.
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

// Outcome is what the ranks of a run that are in this process came to.
type Outcome struct {
	// History holds every rank's events; after an error, up to it. It is nil where no
	// rank is here.
	History *trace.History
	Logs    []*trace.Log // the same, in the order of ranks, ready to be saved
	Loss    []float64    // mean loss of the valid tokens, per step, where the rank that reports it is here
}

// here lists the ranks of a world of a size that are in this process.
func (p *Parts) here(size int) []int {
	if p.Ranks == nil {
		return Here(size)
	}
	return p.Ranks(size)
}

// Backends makes the backends of a world, by rank; nil for those that are in other
// processes.
func (p *Parts) Backends(size int) ([]kernels.Backend, error) {
	if p.Backend == nil {
		return nil, errors.New("no backend is given to run on")
	}
	out := make([]kernels.Backend, size)
	for _, r := range p.here(size) {
		var err error
		if out[r], err = p.Backend(r); err != nil {
			return nil, &BackendError{r, err}
		}
	}
	return out, nil
}

// Open makes the communicators of a world, those of this process in the order of
// ranks. Nothing decorates them.
func (p *Parts) Open(ctx context.Context, backends []kernels.Backend, o comm.Options) ([]comm.Communicator, error) {
	o.Deadline, o.Turns = cmp.Or(p.Deadline, o.Deadline), p.Turns
	if p.Turns != nil {
		o.Watch = nil // who gives turns sees when nobody can take one
	}
	comms, err := p.World.Open(ctx, len(backends), func(rank int) kernels.Backend { return backends[rank] }, o)
	return slices.DeleteFunc(comms, func(c comm.Communicator) bool { return c == nil }), err
}

// Local trains cfg on text with the ranks of the plan that are in this process as
// goroutines. cfg is validated, the text's name and hash are filled in. When a
// rank fails all others end; the error is the *Failure of the rank that the others
// failed because of, and the outcome holds what was recorded.
func Local(ctx context.Context, cfg spec.Config, text data.Text, parts Parts) (*Outcome, error) {
	cfg.Text, cfg.TextHash = text.Name, text.Hash()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if parts.Turns != nil && parts.Ranks != nil {
		return nil, errors.New("a schedule of ranks needs all of them in one process")
	}
	set, err := cfg.Set(text)
	if err != nil {
		return nil, err
	}
	backends, err := parts.Backends(cfg.Plan.World())
	if err != nil {
		return nil, err
	}
	watch := comm.NewWatch(len(backends))
	comms, err := parts.Open(ctx, backends, comm.Options{Algorithm: cfg.Plan.Comm, Deadline: defaultDeadline, Watch: watch})
	if err != nil {
		return nil, err
	}
	if len(comms) == 0 {
		return &Outcome{}, nil
	}
	out := &Outcome{Logs: parts.logs(cfg, comms, backends)}
	ctx, files, err := record(ctx, parts.History, out.Logs)
	if err != nil {
		for _, c := range comms {
			c.Close() // ranks elsewhere do not wait for these
		}
		return nil, err
	}
	reports := cfg.Plan.Dims().Rank(names.Coord{PP: cfg.Plan.Dims().PP - 1})
	err = each(ctx, parts.Turns, comms, func(ctx context.Context, i int) error {
		rank := comms[i].Rank()
		ctx = watch.Enter(ctx, rank)
		defer watch.Leave(ctx)
		losses, err := train.Rank(ctx, cfg, set, comms[i], backends[rank], out.Logs[i], parts.Hooks)
		if rank == reports {
			out.Loss = losses
		}
		return err
	})
	err = files.close(err)
	var merr error
	out.History, merr = trace.Merge(out.Logs)
	return out, errors.Join(err, merr)
}

// logs makes the logs of the ranks that are in this process, and has communicators
// record there.
func (p *Parts) logs(cfg spec.Config, comms []comm.Communicator, backends []kernels.Backend) []*trace.Log {
	out := make([]*trace.Log, len(comms))
	for i, c := range comms {
		log := &trace.Log{Header: train.Header(cfg, c.Rank(), p.Checkpoints.Mark(backends[c.Rank()].Name())), Keep: p.Keep}
		p.Place(&log.Header, backends[c.Rank()])
		out[i] = log
		if p.Logs != nil {
			p.Logs(log)
		}
		comms[i] = comm.Recorded(c, func(rec comm.Record) { log.Record(train.Observe(rec)) })
	}
	return out
}

// Place has a header say where its rank is: of one that has a device, also on which host
// that is.
func (p *Parts) Place(h *trace.Header, be kernels.Backend) {
	h.Host, h.Process, h.Device = p.Origin.Host, p.Origin.Process, kernels.DeviceOf(be)
	if h.Device != "" && h.Host == "" {
		h.Host, _ = os.Hostname() // unknown is empty
	}
}

// each runs every rank on a goroutine and gives the failure that the others
// follow from. The first one ends the context of all.
func each(ctx context.Context, turns comm.Turns, comms []comm.Communicator, run func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var failed failures
	rank := func(i int) {
		defer comms[i].Close()
		if err := guard.Do(func() error { return run(ctx, i) }); err != nil {
			cancel(failed.add(comms[i].Rank(), err))
		}
	}
	if turns != nil {
		turns.Run(len(comms), rank)
		return failed.cause()
	}
	var wg sync.WaitGroup
	for i := range comms {
		wg.Go(func() { rank(i) })
	}
	wg.Wait()
	return failed.cause()
}
