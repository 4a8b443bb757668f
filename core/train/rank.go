package train

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/mesh"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/optim"
	"github.com/lockstep-ml/lockstep/core/parallel"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/internal/guard"
	"github.com/lockstep-ml/lockstep/kernels"
)

// rank is one rank of a run.
type rank struct {
	id    int
	cfg   spec.Config
	hooks Hooks
	be    kernels.Backend
	log   trace.Recorder
	world comm.Communicator
	begun time.Time

	mesh    *mesh.Mesh
	dp      comm.Communicator // mesh.DP and mesh.Overlap as decorated
	overlap comm.Communicator
	source  Source
	opt     optim.Optimizer
	meter   parallel.Meter
	queue   *comm.Queue // of overlap: one for all chunks, as a communicator has one operation at a time
	labels  comm.Labels // of this goroutine's operations, but those of updaters and models
	chunks  []*chunk    // in the order of the layers
	cutter  *parallel.Cutter
	stage   *stage
	seqs    int // capacity of a micro-batch
	counter int // optimizer steps taken
	first   int // first step of this run: 0, or where a checkpoint goes on
	losses  []float64
	told    Progress // what progress says of the step's update

	// What all-reduces of integers work on.
	tokens  [1]uint64
	squares kernels.SquareSum
}

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
		if err := r.guarded(ctx, step); err != nil {
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
	if r.cfg.Evidence.Digests {
		if err := r.recordUnmoved(); err != nil {
			return err
		}
	}
	r.log.Record(trace.Event{Kind: trace.KindEnd, Step: r.cfg.Steps - 1})
	return nil
}

// close ends the queue, whose error it gives.
func (r *rank) close() error {
	if r.queue == nil {
		return nil
	}
	return r.queue.Close()
}

// released tells the run of memory that is kept for later use.
func (r *rank) released(t kernels.Tensor) {
	if r.hooks.Released != nil {
		r.hooks.Released(r.id, t)
	}
}

// build makes the parts of the rank and its buffers.
func (r *rank) build(ctx context.Context, set *data.Set) (err error) {
	if r.hooks.Config != nil {
		r.cfg = r.hooks.Config(r.id, r.cfg)
	}
	cfg := &r.cfg
	if r.mesh, err = mesh.New(ctx, r.world, cfg.Plan.Dims(), cfg.Plan.KVReplicas(cfg.Model)); err != nil {
		return err
	}
	if err := r.decorate(set); err != nil {
		return err
	}
	r.meter.Backend, r.meter.Released = r.be, r.released
	r.be = r.meter.For(names.MemOther)
	r.queue = comm.NewQueueIn(ctx, r.hooks.Turns)
	r.queue.Submitted = func(l comm.Label) { r.log.Record(trace.Event{Kind: trace.KindIssue, Step: l.Step, Unit: l.Tensor}) }
	r.seqs = cfg.Plan.MaxSequences(cfg.Model, cfg.Sequences)
	r.cutter = parallel.NewCutter(cfg.Plan, cfg.Model, r.dp.Rank())
	for _, part := range cfg.Plan.Parts(cfg.Model, r.mesh.At) {
		c, err := r.newChunk(part)
		if err != nil {
			return err
		}
		r.chunks = append(r.chunks, c)
	}
	r.stage, err = r.newStage()
	return err
}

// decorate applies the run's decorators to this rank's parts.
func (r *rank) decorate(set *data.Set) (err error) {
	r.source = &setSource{set: set}
	if r.opt, err = optim.New(r.cfg.Optimizer); err != nil {
		return err
	}
	if d := r.hooks.Comm; d != nil {
		m := r.mesh
		m.World, m.TP, m.KV, m.PP = d(r.id, names.World, m.World), d(r.id, names.TP, m.TP), d(r.id, names.KV, m.KV), d(r.id, names.PP, m.PP)
		m.DP, m.Overlap = d(r.id, names.DP, m.DP), d(r.id, names.DP, m.Overlap)
	}
	r.dp, r.overlap = r.mesh.DP, r.mesh.Overlap
	if r.hooks.Source != nil {
		r.source = r.hooks.Source(r.id, r.source)
	}
	if r.hooks.Optimizer != nil {
		r.opt = r.hooks.Optimizer(r.id, r.opt)
	}
	return nil
}

// cut is the run's change of how this rank's state is cut, nil for none.
func (r *rank) cut() func([]parallel.Bucket) []parallel.Bucket {
	if r.hooks.Buckets == nil {
		return nil
	}
	return func(s []parallel.Bucket) []parallel.Bucket { return r.hooks.Buckets(r.id, s) }
}

// start makes the initial weights and proves that all replicas have them.
func (r *rank) start(ctx context.Context) error {
	for _, c := range r.chunks {
		err := c.Init(ctx, func(p *model.Param, local shard.Range, dst kernels.Tensor) {
			buf := make([]float32, local.Len())
			r.cfg.Model.Initial(p, local, r.cfg.Seed, buf)
			r.be.Write(dst, buf)
		})
		if err != nil {
			return err
		}
		spans := c.Spans()
		for _, what := range slices.Sorted(maps.Keys(spans)) {
			t := spans[what]
			sp := r.be.Span(t)
			r.log.Record(trace.Event{Kind: trace.KindSpan, Step: -1, What: what, Span: &sp, Count: int64(t.Len())})
		}
	}
	if c := r.hooks.Checkpoints.Resume; c != nil {
		if err := r.resume(ctx, c); err != nil {
			return err
		}
	}
	if err := r.recordState(r.first - 1); err != nil {
		return err
	}
	return r.agree(ctx, r.first-1)
}

// guarded is step, with a panic as its error.
func (r *rank) guarded(ctx context.Context, step int) (err error) {
	defer guard.Into(&err)
	return r.step(ctx, step)
}

// step takes one optimizer step.
func (r *rank) step(ctx context.Context, step int) error {
	for _, c := range r.chunks {
		c.Begin(step)
	}
	workers := r.cfg.Plan.Workers(r.cfg.Model)
	micros := r.cutter.Cut(func(w int) ([]data.Sequence, []int64) {
		return r.source.Sequences(step, w, workers)
	})
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
	n := r.tokens[:]
	n[0] = uint64(sum)
	label := comm.Label{Group: names.DP, Tensor: names.Tokens, Step: step}
	if err := r.dp.AllReduceInt(r.labels.On(ctx, label), n, kernels.Sum); err != nil {
		return 0, err
	}
	r.log.Record(trace.Event{Kind: trace.KindTokens, Step: step, Count: int64(n[0])})
	if n[0] == 0 {
		return 0, data.ErrNoTokens
	}
	return int64(n[0]), nil
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
	x := last.Loss()
	r.be.Scale(x, x, 1/float64(n))
	var v [1]float32
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
	if !r.cfg.Evidence.Digests {
		return nil
	}
	for _, c := range r.chunks {
		_, moments := c.Replicated() // the reduced gradient is replicated where the moments are
		for _, p := range c.Shards() {
			if err := c.evidence(moments).Digests(trace.Event{Step: step, What: trace.Grad}, p.G, p.Range); err != nil {
				return err
			}
		}
	}
	return nil
}

// norm is the global gradient norm: every rank sums the squares that it answers
// for, and an integer all-reduce adds them exactly.
func (r *rank) norm(ctx context.Context, step int) (float64, error) {
	sum := &r.squares
	*sum = kernels.SquareSum{}
	for _, c := range r.chunks {
		c.squares(sum)
	}
	label := comm.Label{Group: names.World, Tensor: trace.Norm, Step: step}
	if err := r.mesh.World.AllReduceInt(r.labels.On(ctx, label), sum[:], kernels.Sum); err != nil {
		return 0, err
	}
	return optim.Norm(sum), nil
}

// apply updates what this rank owns and brings the weights to all that hold
// them.
func (r *rank) apply(ctx context.Context, step int, s optim.Step) error {
	for _, c := range r.chunks {
		if r.cfg.Evidence.Digests {
			if err := c.keepWeights(); err != nil {
				return err
			}
		}
		c.apply(s)
		if r.cfg.Evidence.Digests {
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
