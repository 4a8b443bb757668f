package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Outcome is what a run came to.
type Outcome struct {
	// History holds every rank's events; after an error, up to it.
	History *trace.History
	Logs    []*trace.Log // the same, per rank, ready to be saved
	Loss    []float64    // mean loss of the valid tokens, per step
}

// Run trains cfg on text with all ranks of the plan as goroutines of this
// process. cfg is validated, the text's name and hash are filled in. When a
// rank fails all others end; the error is the first rank's to fail, and the
// outcome holds what was recorded.
func Run(ctx context.Context, cfg spec.Config, text data.Text, parts Parts) (*Outcome, error) {
	cfg.Text, cfg.TextHash = text.Name, text.Hash()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	set, err := cfg.Set(text)
	if err != nil {
		return nil, err
	}
	world := cfg.Plan.World()
	out := &Outcome{Logs: make([]*trace.Log, world)}
	backends := make([]kernels.Backend, world)
	for r := range world {
		if backends[r], err = parts.Backend(r); err != nil {
			return nil, fmt.Errorf("backend of rank %d: %w", r, err)
		}
		out.Logs[r] = &trace.Log{Header: header(cfg, r, backends[r].Name()), Keep: parts.Keep}
	}
	comms, err := comm.NewLocal(world, func(r int) kernels.Backend { return backends[r] }, comm.LocalOptions{
		Algorithm: cfg.Plan.Comm, Deadline: cmp.Or(parts.Deadline, defaultDeadline),
		Observe: func(rec comm.Record) { observe(out.Logs[rec.Rank], rec) },
	})
	if err != nil {
		return nil, err
	}
	out.Loss, err = runRanks(ctx, cfg, set, parts, backends, comms, out.Logs)
	var merr error
	out.History, merr = trace.Merge(out.Logs)
	return out, errors.Join(err, merr)
}

func header(cfg spec.Config, rank int, backend string) trace.Header {
	return trace.Header{Schema: trace.Schema, Arithmetic: kernels.Arithmetic, Rank: rank, World: cfg.Plan.World(),
		Plan: cfg.Plan.String(), Model: cfg.Model.Name, Backend: backend, Spec: cfg.Recorded()}
}

// runRanks runs every rank on a goroutine and gives the first failure.
func runRanks(ctx context.Context, cfg spec.Config, set *data.Set, parts Parts, backends []kernels.Backend, comms []comm.Communicator, logs []*trace.Log) ([]float64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	var once sync.Once
	var first error
	losses := make([][]float64, len(comms))
	for i := range comms {
		wg.Go(func() {
			defer comms[i].Close()
			r := &rank{id: i, cfg: cfg, parts: parts, be: backends[i], log: logs[i], world: comms[i], begun: time.Now()}
			if err := r.guarded(ctx, set); err != nil {
				once.Do(func() { first = fmt.Errorf("rank %d: %w", i, err) })
				cancel(first)
			}
			losses[i] = r.losses
		})
	}
	wg.Wait()
	last := cfg.Plan.Dims().Rank(names.Coord{PP: cfg.Plan.Dims().PP - 1})
	return losses[last], first
}

// observe records an operation that ended on a rank.
func observe(log *trace.Log, rec comm.Record) {
	ev := trace.Event{Kind: trace.KindComm, Step: rec.Label.Step, Op: rec.Op, Group: rec.Label.Group, Unit: rec.Label.Tensor,
		Lo: rec.Label.Lo, Hi: rec.Label.Hi, Ranks: rec.Group, Overlap: rec.Label.Overlap, Seq: rec.Seq, Count: rec.Count, Bytes: rec.Bytes, Moved: rec.Moved, Peer: max(rec.Peer, 0)}
	if rec.Err != nil {
		ev.Text = rec.Err.Error()
	}
	log.Record(ev)
}

// guarded is run, with a panic of a kernel (a shape that a decorated part made
// impossible) turned into the rank's error.
func (r *rank) guarded(ctx context.Context, set *data.Set) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return r.run(ctx, set)
}
