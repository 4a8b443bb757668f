package train

import (
	"context"
	"errors"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/internal/guard"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Rank is one rank of a run of cfg, which is valid: it trains on the sequences
// of set as rank world.Rank() of the plan, on backend be, and records what
// happens in log. It returns when this rank is done, with the mean loss of every
// step that it took (0 on ranks that do not know it). A panic, of a
// kernel too (a shape that a hook made impossible), is an error.
func Rank(ctx context.Context, cfg spec.Config, set *data.Set, world comm.Communicator, be kernels.Backend, log trace.Recorder, hooks Hooks) (losses []float64, err error) {
	ctx, abort := context.WithCancelCause(ctx)
	r := &rank{id: world.Rank(), cfg: cfg, hooks: hooks, be: be, log: log, world: world, begun: time.Now()}
	defer func() {
		if err != nil {
			abort(err) // what the queue waits in must not wait for peers that wait for this rank
		}
		// A peer may have told the rank of what its own queue broke down at.
		if beside := r.close(); err != nil && !brokeDown(err) && brokeDown(beside) {
			err = beside
		}
		abort(nil)
		losses = r.losses
	}()
	defer guard.Into(&err)
	return nil, r.run(ctx, set)
}

// brokeDown reports whether an error comes of a panic.
func brokeDown(err error) bool { return errors.As(err, new(*guard.Panic)) }

// Header begins the history of a rank of a run of cfg, which is valid.
func Header(cfg spec.Config, rank int, backend string) trace.Header {
	return trace.Header{Schema: trace.Schema, Arithmetic: kernels.Arithmetic, Rank: rank, World: cfg.Plan.World(),
		Plan: cfg.Plan.String(), Model: cfg.Model.Name, Backend: backend, Spec: cfg.Recorded()}
}

// Observe is the event of an operation that ended on a rank.
func Observe(rec comm.Record) trace.Event {
	ev := trace.Event{Kind: trace.KindComm, Step: rec.Label.Step, Op: rec.Op, Group: rec.Label.Group, Unit: rec.Label.Tensor,
		Lo: rec.Label.Lo, Hi: rec.Label.Hi, Ranks: rec.Group, Overlap: rec.Label.Overlap, Seq: rec.Seq, Count: rec.Count, Bytes: rec.Bytes, Moved: rec.Moved, Peer: max(rec.Peer, 0)}
	if rec.Err != nil {
		ev.Text = rec.Err.Error()
	}
	return ev
}
