package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/optim"
	"github.com/lockstep-ml/lockstep/core/parallel"
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

// run builds the rank and takes all steps.
func (r *rank) run(ctx context.Context, set *data.Set) error {
	if err := r.build(ctx, set); err != nil {
		return err
	}
	if err := r.start(ctx); err != nil {
		return err
	}
	for step := r.first; step < r.cfg.Steps; step++ {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := guard.Do(func() error { return r.step(ctx, step) }); err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
		store, stop := r.hooks.Checkpoints.due(step, r.cfg.Steps)
		if store {
			if err := r.save(ctx, step); err != nil {
				return fmt.Errorf("step %d: %w", step, err)
			}
		}
		if stop {
			return nil // without the end of the history: the run has not ended
		}
	}
	if r.cfg.Recording.Digests {
		if err := r.recordUnmoved(); err != nil {
			return err
		}
	}
	r.log.Record(trace.Event{Kind: trace.KindEnd, Step: r.cfg.Steps - 1})
	return nil
}

// step takes one optimizer step.
func (r *rank) step(ctx context.Context, step int) error {
	for _, c := range r.chunks {
		c.Begin(step)
	}
	workers := r.cfg.Plan.Workers(r.cfg.Model)
	micros := r.cutter.Cut(func(w int) ([]data.Sequence, []int64) { return r.source.Sequences(step, w, workers) })
	n, err := r.countTokens(ctx, step, micros)
	if err != nil {
		return err
	}
	for i := range micros {
		micros[i].Batch.InvN = 1 / float64(n)
	}
	if err := r.stage.step(ctx, micros); err != nil {
		return err
	}
	if err := r.finish(ctx, step, n); err != nil {
		return err
	}
	if err := r.update(ctx, step); err != nil {
		return err
	}
	for _, u := range r.meter.Take() {
		r.log.Record(trace.Event{Kind: trace.KindMemory, Step: step, What: u.What, Count: u.Live, Bytes: u.Peak})
	}
	if err := r.agree(ctx, step); err != nil {
		return err
	}
	r.seen.Settle()
	r.progress(step, n)
	return nil
}

// countTokens records the rank's data and agrees on the valid tokens of the
// global batch, before the first backward pass needs them.
func (r *rank) countTokens(ctx context.Context, step int, micros []parallel.MicroBatch) (int64, error) {
	var sum int64
	digests := make([]kernels.Digest, len(micros)) // the log keeps them
	for i := range micros {
		mb := &micros[i]
		if mb.Batch.Seqs > r.seqs {
			return 0, fmt.Errorf("micro-batch %d of worker %d has %d sequences: the plan allows %d", mb.Micro, mb.Worker, mb.Batch.Seqs, r.seqs)
		}
		digests[i] = mb.Digest()
		r.log.Record(trace.Event{Kind: trace.KindData, Step: step, Worker: mb.Worker, Micro: mb.Micro, IDs: mb.IDs, Count: mb.Valid, Digest: &digests[i]})
		sum += mb.Valid
	}
	r.tokens[0] = uint64(sum)
	ctx = r.labels.On(ctx, comm.Label{Group: names.DP, Tensor: names.Tokens, Step: step})
	if err := r.dp.AllReduceInt(ctx, r.tokens[:], kernels.Sum); err != nil {
		return 0, err
	}
	n := int64(r.tokens[0])
	r.log.Record(trace.Event{Kind: trace.KindTokens, Step: step, Count: n})
	if n == 0 {
		return 0, data.ErrNoTokens
	}
	return n, nil
}

// finish completes the reductions, joins the two sources of a tied embedding,
// and makes the mean loss of the reduced sum.
func (r *rank) finish(ctx context.Context, step int, n int64) error {
	for _, c := range r.chunks {
		if err := c.Finish(ctx); err != nil {
			return err
		}
	}
	if err := r.joinTied(ctx, step); err != nil {
		return err
	}
	last := r.chunks[len(r.chunks)-1]
	if !last.model.Part().Last {
		return nil
	}
	x, v := last.Loss(), [1]float32{}
	r.be.Scale(x, x, 1/float64(n))
	if err := r.be.Read(v[:], x); err != nil {
		return err
	}
	r.losses = append(r.losses, float64(v[0]))
	r.log.Record(trace.Event{Kind: trace.KindScalar, Step: step, What: trace.Loss, Value: trace.Float(v[0]), Bits: kernels.Bits(v[0]), Once: r.reports()})
	return nil
}

// reports says whether this rank's scalars are the ones that count: the first
// of the last stage, which has the loss.
func (r *rank) reports() bool {
	at := r.mesh.At
	return at.DP == 0 && at.TP == 0 && at.PP == r.mesh.Dims.PP-1
}

func (r *rank) scalar(step int, what string, v float64) {
	r.log.Record(trace.Event{Kind: trace.KindScalar, Step: step, What: what, Value: trace.Float(v), Once: r.reports()})
}

// update clips by the global norm and takes the optimizer's step, unless the
// norm is not finite: then no rank steps.
func (r *rank) update(ctx context.Context, step int) error {
	if err := r.recordGrads(step); err != nil {
		return err
	}
	norm, err := r.norm(ctx, step)
	if err != nil {
		return err
	}
	lr, coef := r.cfg.Optimizer.At(r.counter), optim.ClipCoef(norm, r.cfg.Optimizer.Clip)
	r.scalar(step, trace.Norm, norm)
	r.scalar(step, trace.Coef, coef)
	r.scalar(step, trace.LR, lr)
	r.told = Progress{Norm: norm, LR: lr, Skipped: math.IsNaN(norm) || math.IsInf(norm, 0)}
	if r.told.Skipped {
		r.log.Record(trace.Event{Kind: trace.KindSkip, Step: step, Text: fmt.Sprintf("gradient norm %v: no rank steps", norm)})
	} else if err := r.apply(ctx, step, optim.Step{T: r.counter, LR: lr, Coef: coef}); err != nil {
		return err
	}
	if r.hooks.Counter != nil {
		r.counter = r.hooks.Counter(r.id, r.counter)
	}
	r.scalar(step, trace.Counter, float64(r.counter))
	return r.recordState(step)
}

func (r *rank) recordGrads(step int) error {
	if !r.cfg.Recording.Digests {
		return nil
	}
	for _, c := range r.chunks {
		_, moments := c.Replicated() // the reduced gradient is replicated where the moments are
		for _, p := range c.Shards() {
			if err := c.digester(moments).Digests(trace.Event{Step: step, What: trace.Grad}, p.G, p.Range); err != nil {
				return err
			}
		}
	}
	return nil
}

// norm is the global gradient norm: every rank sums the squares that it answers
// for, and an integer all-reduce adds them exactly.
func (r *rank) norm(ctx context.Context, step int) (float64, error) {
	r.squares = kernels.SquareSum{}
	for _, c := range r.chunks {
		c.squares(&r.squares)
	}
	r.seen.Sums.Wait()
	ctx = r.labels.On(ctx, comm.Label{Group: names.World, Tensor: trace.Norm, Step: step})
	if err := r.mesh.World.AllReduceInt(ctx, r.squares[:], kernels.Sum); err != nil {
		return 0, err
	}
	return optim.Norm(&r.squares), nil
}

// apply updates what this rank owns and brings the weights to all that hold
// them.
func (r *rank) apply(ctx context.Context, step int, s optim.Step) error {
	for _, c := range r.chunks {
		if r.cfg.Recording.Digests {
			if err := c.keepWeights(); err != nil {
				return err
			}
		}
		c.apply(s)
		if r.cfg.Recording.Digests {
			if err := c.recordUpdate(step); err != nil {
				return err
			}
		}
		if err := c.Publish(ctx); err != nil {
			return err
		}
	}
	r.counter++
	return r.copyTied(ctx, step)
}

func (r *rank) progress(step int, n int64) {
	if r.hooks.Progress == nil || !r.reports() {
		return
	}
	p := r.told
	p.Step, p.Steps, p.Loss, p.Tokens, p.Elapsed = step, r.cfg.Steps, r.losses[len(r.losses)-1], n, time.Since(r.begun)
	r.hooks.Progress(p)
}

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
