package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/optim"
	"github.com/lockstep-ml/lockstep/core/parallel"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// ErrNoTokens is a step whose global batch has no valid token: the mean loss is
// undefined and no rank steps.
var ErrNoTokens = errors.New("the global batch has no valid token")

// rank is one rank of a run.
type rank struct {
	id    int
	cfg   Config
	parts Parts
	be    kernels.Backend
	log   *trace.Log
	world comm.Communicator
	begun time.Time

	dp      comm.Communicator // as decorated
	source  Source
	model   *model.Model
	acts    *model.Acts
	ddp     *parallel.DDP
	opt     optim.Optimizer
	moments []kernels.Tensor
	prev    kernels.Tensor // weights before the step, where changes are recorded
	ev      parallel.Evidence
	seqs    int // capacity of a micro-batch
	counter int // optimizer steps taken
	losses  []float64
	tokens  int64
}

// run builds the rank and takes all steps.
func (r *rank) run(ctx context.Context, set *data.Set) error {
	if err := r.build(ctx, set); err != nil {
		return err
	}
	defer r.ddp.Queue.Close()
	if err := r.start(ctx); err != nil {
		return err
	}
	for step := range r.cfg.Steps {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if err := r.step(ctx, step); err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
	}
	if r.cfg.Evidence.Digests {
		if err := r.ev.Unmoved(&r.cfg.Model, r.cfg.Seed, r.cfg.Steps-1, r.ddp.Weights.Range(0, r.model.Layout.Owned), r.ddp.Owned()); err != nil {
			return err
		}
	}
	r.ev.Record(trace.Event{Kind: trace.KindEnd, Step: r.cfg.Steps - 1})
	return nil
}

// build makes the parts of the rank and its buffers. Weights are the first
// buffer that it allocates.
func (r *rank) build(ctx context.Context, set *data.Set) error {
	r.decorate(set)
	cfg := &r.cfg
	part := model.Whole(cfg.Model)
	layout := model.NewLayout(cfg.Model, part)
	weights, err := r.alloc("weights", layout.Weights)
	if err != nil {
		return err
	}
	r.seqs = parallel.MaxSequences(cfg.Plan, cfg.Model, cfg.Sequences)
	if r.model, err = model.New(r.be, cfg.Model, part, r.seqs); err != nil {
		return err
	}
	if r.acts, err = r.model.NewActs(r.seqs); err != nil {
		return err
	}
	grads, err := parallel.NewGradients(r.be, &r.model.Layout, cfg.Plan.RankWorkers(cfg.Model, 0).Len())
	if err != nil {
		return err
	}
	for range r.opt.Moments() {
		m, err := r.alloc("moments", layout.Owned)
		if err != nil {
			return err
		}
		r.moments = append(r.moments, m)
	}
	if cfg.Evidence.Digests {
		if r.prev, err = r.alloc("previous weights", layout.Owned); err != nil {
			return err
		}
	}
	r.ev = parallel.Evidence{Recorder: r.log, Backend: r.be, Layout: &r.model.Layout, Once: r.dp.Rank() == 0, Capture: cfg.Evidence.Capture}
	r.ddp = &parallel.DDP{Model: r.model, Grads: grads, Weights: weights, Comm: r.dp, Queue: comm.NewQueue(ctx),
		Evidence: &r.ev, RecordWorkers: cfg.Evidence.Workers}
	r.model.Hooks = r.ddp
	return nil
}

// decorate applies the run's decorators to this rank's parts.
func (r *rank) decorate(set *data.Set) {
	if r.parts.Config != nil {
		r.cfg = r.parts.Config(r.id, r.cfg)
	}
	r.dp, r.source = r.world, setSource{set}
	r.opt, _ = optim.New(r.cfg.Optimizer) // the configuration is valid
	if r.parts.Comm != nil {
		r.dp = r.parts.Comm(r.id, r.dp)
	}
	if r.parts.Source != nil {
		r.source = r.parts.Source(r.id, r.source)
	}
	if r.parts.Optimizer != nil {
		r.opt = r.parts.Optimizer(r.id, r.opt)
	}
}

func (r *rank) alloc(what string, n int) (kernels.Tensor, error) {
	b, err := r.be.Alloc(n)
	if err != nil {
		return kernels.Tensor{}, fmt.Errorf("%s: %w", what, err)
	}
	return kernels.Flat(b), nil
}

// setSource is the plain source: the set, interleaved over logical workers.
type setSource struct{ set *data.Set }

func (s setSource) Sequences(step, worker, workers int) ([]data.Sequence, []int64) {
	all, ids := s.set.Step(step), s.set.IDs(step)
	var seqs []data.Sequence
	var out []int64
	for _, i := range (shard.Part{Index: worker, Size: workers}).Interleave(len(all)) {
		seqs, out = append(seqs, all[i]), append(out, int64(ids[i]))
	}
	return seqs, out
}

// start fills in the initial weights: every rank builds them from the seed,
// rank 0 of the data-parallel group broadcasts its own, and digests prove that
// all are equal.
func (r *rank) start(ctx context.Context) error {
	l := &r.model.Layout
	for i := range l.Params {
		p := &l.Params[i]
		if p.Range().Hi > l.Weights {
			continue
		}
		buf := make([]float32, p.Len())
		r.cfg.Model.Initial(p, shard.Range{Hi: p.Len()}, r.cfg.Seed, buf)
		r.be.Write(r.ddp.Weights.Range(p.Off, p.Off+p.Len()), buf)
	}
	for u := range l.Units {
		unit := &l.Units[u]
		if unit.Hi > l.Weights {
			continue
		}
		x := r.ddp.Weights.Range(unit.Lo, unit.Hi)
		label := comm.Label{Group: "dp", Tensor: unit.Name, Lo: int64(unit.Lo), Hi: int64(unit.Hi), Step: -1}
		if err := r.dp.Broadcast(comm.WithLabel(ctx, label), x, 0); err != nil {
			return err
		}
	}
	if err := r.recordStart(); err != nil {
		return err
	}
	return r.agree(ctx, -1)
}

func (r *rank) recordStart() error {
	spans := []struct {
		what string
		t    kernels.Tensor
	}{{trace.Weight, r.ddp.Weights}}
	for i, g := range r.ddp.Grads.Buffers() {
		spans = append(spans, struct {
			what string
			t    kernels.Tensor
		}{fmt.Sprintf("%s.%d", trace.Grad, i), g})
	}
	for i, name := range r.opt.Moments() {
		spans = append(spans, struct {
			what string
			t    kernels.Tensor
		}{name, r.moments[i]})
	}
	for _, s := range spans {
		sp := r.be.Span(s.t)
		r.ev.Record(trace.Event{Kind: trace.KindSpan, Step: -1, What: s.what, Span: &sp, Count: int64(s.t.Len())})
	}
	return r.recordState(-1)
}

// recordState records the digests of weights and moments.
func (r *rank) recordState(step int) error {
	if !r.cfg.Evidence.Digests {
		return nil
	}
	owned := r.ddp.Owned()
	if err := r.ev.Digests(trace.Event{Step: step, What: trace.Weight}, r.ddp.Weights.Range(owned.Lo, owned.Hi), owned); err != nil {
		return err
	}
	for i, name := range r.opt.Moments() {
		if err := r.ev.Digests(trace.Event{Step: step, What: name}, r.moments[i].Range(owned.Lo, owned.Hi), owned); err != nil {
			return err
		}
	}
	return nil
}

// step takes one optimizer step.
func (r *rank) step(ctx context.Context, step int) error {
	r.ddp.Begin(step)
	workers := r.cfg.Plan.Workers(r.cfg.Model)
	items := parallel.Items(r.cfg.Plan, r.cfg.Model, r.dp.Rank(), func(w int) ([]data.Sequence, []int64) {
		return r.source.Sequences(step, w, workers)
	})
	n, err := r.countTokens(ctx, step, items)
	if err != nil {
		return err
	}
	if err := r.passes(ctx, items, 1/float64(n)); err != nil {
		return err
	}
	if err := r.ddp.Finish(ctx); err != nil {
		return err
	}
	if err := r.loss(step, n); err != nil {
		return err
	}
	if err := r.update(ctx, step); err != nil {
		return err
	}
	if err := r.agree(ctx, step); err != nil {
		return err
	}
	r.progress(step, n)
	return nil
}

// countTokens records the rank's data and agrees on the valid tokens of the
// global batch, before the first backward pass needs them.
func (r *rank) countTokens(ctx context.Context, step int, items []parallel.Item) (int64, error) {
	var sum int64
	for i := range items {
		it := &items[i]
		if it.Batch.Seqs > r.seqs {
			return 0, fmt.Errorf("micro-batch %d of worker %d has %d sequences: the plan allows %d", it.Micro, it.Worker, it.Batch.Seqs, r.seqs)
		}
		r.ev.Record(trace.Event{Kind: trace.KindData, Step: step, Worker: it.Worker, Micro: it.Micro, IDs: it.IDs, Count: it.Valid})
		sum += it.Valid
	}
	n := []uint64{uint64(sum)}
	label := comm.Label{Group: "dp", Tensor: "tokens", Step: step}
	if err := r.dp.AllReduceInt(comm.WithLabel(ctx, label), n, kernels.Sum); err != nil {
		return 0, err
	}
	r.ev.Record(trace.Event{Kind: trace.KindTokens, Step: step, Count: int64(n[0])})
	if n[0] == 0 {
		return 0, ErrNoTokens
	}
	return int64(n[0]), nil
}

// passes runs every micro-batch forward and backward, in order.
func (r *rank) passes(ctx context.Context, items []parallel.Item, invN float64) error {
	for i := range items {
		it := &items[i]
		it.Batch.InvN = invN
		if i == 0 || items[i-1].EndsWorker {
			r.ddp.BeginWorker(it)
		}
		r.ddp.Enter(it)
		if err := r.model.Forward(ctx, r.acts, it.Batch); err != nil {
			return err
		}
		if _, err := r.model.Backward(ctx, r.acts, kernels.Tensor{}); err != nil {
			return err
		}
		if it.EndsWorker {
			r.ddp.EndWorker(it)
		}
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// loss reads the reduced sum and makes the mean loss of it.
func (r *rank) loss(step int, n int64) error {
	x := r.ddp.Grads.Loss()
	r.be.Scale(x, x, 1/float64(n))
	var v [1]float32
	if err := r.be.Read(v[:], x); err != nil {
		return err
	}
	r.losses = append(r.losses, float64(v[0]))
	r.scalar32(step, trace.Loss, v[0])
	return nil
}

func (r *rank) scalar(step int, what string, v float64) {
	r.ev.Record(trace.Event{Kind: trace.KindScalar, Step: step, What: what, Value: trace.Float(v), Once: r.ev.Once})
}

func (r *rank) scalar32(step int, what string, v float32) {
	r.ev.Record(trace.Event{Kind: trace.KindScalar, Step: step, What: what, Value: trace.Float(v), Bits: kernels.Bits(v), Once: r.ev.Once})
}

// update clips by the global norm and takes the optimizer's step, unless the
// norm is not finite: then no rank steps.
func (r *rank) update(ctx context.Context, step int) error {
	owned := r.ddp.Owned()
	grads := r.ddp.Grads.Flat().Range(owned.Lo, owned.Hi)
	if r.cfg.Evidence.Digests {
		if err := r.ev.Digests(trace.Event{Step: step, What: trace.Grad}, grads, owned); err != nil {
			return err
		}
	}
	norm, err := r.norm(ctx, step, grads)
	if err != nil {
		return err
	}
	lr, coef := r.cfg.Optimizer.At(r.counter), optim.ClipCoef(norm, r.cfg.Optimizer.Clip)
	r.scalar(step, trace.Norm, norm)
	r.scalar(step, trace.Coef, coef)
	r.scalar(step, trace.LR, lr)
	if math.IsNaN(norm) || math.IsInf(norm, 0) {
		r.ev.Record(trace.Event{Kind: trace.KindSkip, Step: step, Text: fmt.Sprintf("gradient norm %v: no rank steps", norm)})
	} else {
		if r.cfg.Evidence.Digests {
			r.be.Copy(r.prev, r.ddp.Weights.Range(0, r.model.Layout.Owned))
		}
		r.apply(owned, optim.Step{T: r.counter, LR: lr, Coef: coef})
		r.counter++
		if r.cfg.Evidence.Digests {
			r.ev.Changed(step, r.ddp.Weights.Range(owned.Lo, owned.Hi), r.prev.Range(owned.Lo, owned.Hi), owned)
		}
	}
	r.scalar(step, trace.Counter, float64(r.counter))
	return r.recordState(step)
}

// norm is the global gradient norm: every data-parallel rank sums the squares
// of its share, each logical parameter once, and an integer all-reduce adds
// them exactly.
func (r *rank) norm(ctx context.Context, step int, grads kernels.Tensor) (float64, error) {
	var sum kernels.SquareSum
	share := shard.Part{Index: r.dp.Rank(), Size: r.dp.Size()}.Of(r.model.Layout.Owned)
	r.model.Layout.Pieces(share, func(p *model.Param, local shard.Range) {
		if p.Counts {
			r.be.SumSquares(&sum, grads.Range(p.Off+local.Lo, p.Off+local.Hi))
		}
	})
	label := comm.Label{Group: "world", Tensor: trace.Norm, Step: step}
	if err := r.dp.AllReduceInt(comm.WithLabel(ctx, label), sum[:], kernels.Sum); err != nil {
		return 0, err
	}
	return optim.Norm(&sum), nil
}

// apply updates the elements of r's range, one call per run of equal decay rule.
func (r *rank) apply(owned shard.Range, s optim.Step) {
	grads := r.ddp.Grads.Flat()
	var run shard.Range
	decays := false
	flush := func() {
		if run.Empty() {
			return
		}
		m := make([]kernels.Tensor, len(r.moments))
		for i, t := range r.moments {
			m[i] = t.Range(run.Lo, run.Hi)
		}
		r.opt.Update(r.be, r.ddp.Weights.Range(run.Lo, run.Hi), grads.Range(run.Lo, run.Hi), m, decays, s)
	}
	r.model.Layout.Pieces(owned, func(p *model.Param, local shard.Range) {
		x := local.Shift(p.Off)
		if x.Lo != run.Hi || p.Decays != decays {
			flush()
			run = shard.Range{Lo: x.Lo, Hi: x.Lo}
			decays = p.Decays
		}
		run.Hi = x.Hi
	})
	flush()
}

func (r *rank) progress(step int, n int64) {
	r.tokens += n
	if r.parts.Progress == nil || r.id != 0 {
		return
	}
	r.parts.Progress(Progress{Step: step, Steps: r.cfg.Steps, Loss: r.losses[len(r.losses)-1], Tokens: n, Elapsed: time.Since(r.begun)})
}
