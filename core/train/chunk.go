package train

import (
	"context"
	"fmt"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/optim"
	"github.com/lockstep-ml/lockstep/core/parallel"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// chunk is one model part of a rank with the owner of its state: the only one,
// or one of several under the interleaved schedule.
type chunk struct {
	parallel.Updater
	r     *rank
	model *model.Model
	ev    parallel.Digester
	prev  []kernels.Tensor // weights of the shards before a step, where changes are recorded
	free  []*model.Acts    // activations of no micro-batch
	held  map[int]*model.Acts
	edges []kernels.Tensor // buffers between stages that are not in use
	run   []kernels.Tensor // moments of the elements that an update is about
	at    place
}

// place is where a chunk is in its step: it labels what its model sends.
type place struct {
	step, worker, micro int
	unit                string
}

// newChunk builds the chunk's model and state.
func (r *rank) newChunk(part model.Part) (*chunk, error) {
	c := &chunk{r: r, held: map[int]*model.Acts{}}
	var err error
	if c.model, err = model.New(r.be, r.cfg.Model, part, r.seqs); err != nil {
		return nil, err
	}
	c.model.TP, c.model.KV = c.reducer(names.TP, r.mesh.TP), c.reducer(names.KV, r.mesh.KV)
	c.ev = parallel.Digester{Evidence: r.seen, Backend: r.be, Layout: &c.model.Layout, Capture: r.cfg.Recording.Capture}
	if r.cfg.Recording.Taps {
		c.model.Tap = c.tap
	}
	c.Updater, err = parallel.New(parallel.Setup{Model: c.model, Plan: r.cfg.Plan, DP: r.dp, Overlap: r.overlap, Meter: &r.meter,
		Digester: &c.ev, Moments: len(r.opt.Moments()), Workers: r.cfg.Recording.Workers, Poison: r.cfg.Recording.Digests, Queue: r.queue, Cut: r.cut()})
	if err != nil {
		return nil, err
	}
	if r.hooks.Updater != nil {
		c.Updater = r.hooks.Updater(r.id, c.Updater)
	}
	c.model.Hooks = c
	return c, nil
}

// reducer labels the operations of a group that the model uses; nil for a group
// of one rank.
func (c *chunk) reducer(group names.Axis, g comm.Communicator) model.Reducer {
	if g.Size() == 1 {
		return nil
	}
	return &labelled{c: c, group: group, Communicator: g}
}

type labelled struct {
	c     *chunk
	group names.Axis
	comm.Communicator
	labels comm.Labels
}

func (l *labelled) AllReduce(ctx context.Context, x kernels.Tensor, op kernels.Op) error {
	ctx = l.labels.On(ctx, comm.Label{Group: l.group, Tensor: l.c.at.unit, Step: l.c.at.step, Hi: int64(x.Len())})
	return l.Communicator.AllReduce(ctx, x, op)
}

// Before implements model.Hooks: it notes where the model is.
func (c *chunk) Before(ctx context.Context, u int, ph model.Phase) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	c.at.unit = c.model.Layout.Units[u].Name
	return c.Updater.Before(ctx, u, ph)
}

// After implements model.Hooks: it records that a unit is done with, before its
// owner does what follows.
func (c *chunk) After(ctx context.Context, u int, ph model.Phase) error {
	c.ev.Record(trace.Event{Kind: trace.KindPhase, Step: c.at.step, What: direction(ph), Unit: c.model.Layout.Units[u].Name, Worker: c.at.worker, Micro: c.at.micro})
	return c.Updater.After(ctx, u, ph)
}

// direction is the What of a pass.
func direction(ph model.Phase) string {
	if ph == model.Backward {
		return trace.Backward
	}
	return trace.Forward
}

// Begin starts a step.
func (c *chunk) Begin(step int) {
	c.at.step = step
	c.Updater.Begin(step)
}

// Enter says which micro-batch the next pass belongs to.
func (c *chunk) Enter(mb *parallel.MicroBatch) {
	c.at.worker, c.at.micro = mb.Worker, mb.Micro
	c.Updater.Enter(mb)
}

// tap records the digest of an activation or its gradient: columns cols of a
// logical tensor of full columns.
func (c *chunk) tap(u int, ph model.Phase, name string, x kernels.Tensor, cols shard.Range, full int) {
	var d kernels.Digest
	c.r.seen.Sums.Hash(&d, x, kernels.Place{ID: kernels.TensorID(name), First: uint64(cols.Lo), RowStride: uint64(full)})
	c.r.seen.Record(trace.Event{Kind: trace.KindTap, Step: c.at.step, What: direction(ph), Unit: c.model.Layout.Units[u].Name, Tensor: name,
		Micro: c.at.micro, Lo: int64(cols.Lo), Hi: int64(cols.Hi), Count: int64(full), Digest: &d}, nil, nil)
}

// forward runs a micro-batch forward over a, which a stage without the embedding
// has received its input into.
func (c *chunk) forward(ctx context.Context, mb *parallel.MicroBatch, a *model.Acts) error {
	if _, twice := c.held[mb.Micro]; twice {
		return fmt.Errorf("forward of micro-batch %d: its activations are here already", mb.Micro)
	}
	c.held[mb.Micro] = a
	c.r.live(c.at.step)
	c.Enter(mb)
	return c.model.Forward(ctx, a, mb.Batch)
}

// backward runs a micro-batch backward and frees its activations. dout is the
// gradient of its output, dx that of its input.
func (c *chunk) backward(ctx context.Context, mb *parallel.MicroBatch, first bool, dout kernels.Tensor) (dx kernels.Tensor, err error) {
	a, ok := c.held[mb.Micro]
	if !ok {
		return dx, fmt.Errorf("backward of micro-batch %d: its activations are not here", mb.Micro)
	}
	if first {
		c.BeginWorker(mb)
	}
	c.Enter(mb)
	if dx, err = c.model.Backward(ctx, a, dout); err != nil {
		return dx, err
	}
	delete(c.held, mb.Micro)
	c.r.released(a.Memory())
	c.free = append(c.free, a)
	if mb.EndsWorker {
		return dx, c.EndWorker(ctx, mb)
	}
	return dx, nil
}

// acts takes unused activations or makes some.
func (c *chunk) acts() (*model.Acts, error) {
	if n := len(c.free); n > 0 {
		a := c.free[n-1]
		c.free = c.free[:n-1]
		return a, nil
	}
	return c.model.NewActs(c.r.meter.For(names.MemActivations), c.r.seqs)
}

// apply takes the optimizer's step on every shard, one call per run of equal
// decay rule.
func (c *chunk) apply(s optim.Step) {
	for _, p := range c.Shards() {
		var run shard.Range
		decays := false
		flush := func() {
			if run.Empty() {
				return
			}
			lo, hi := run.Lo-p.Lo, run.Hi-p.Lo
			c.run = c.run[:0]
			for _, t := range p.M {
				c.run = append(c.run, t.Range(lo, hi))
			}
			c.r.opt.Update(c.r.be, p.W.Range(lo, hi), p.G.Range(lo, hi), c.run, decays, s)
		}
		c.model.Layout.Pieces(p.Range, func(q *model.Param, local shard.Range) {
			x := local.Shift(q.Off)
			if x.Lo != run.Hi || q.Decays != decays {
				flush()
				run, decays = shard.Range{Lo: x.Lo, Hi: x.Lo}, q.Decays
			}
			run.Hi = x.Hi
		})
		flush()
	}
}

// squares adds the squares of the gradient elements that this rank answers for,
// each logical parameter once. They are to be waited for.
func (c *chunk) squares(sum *kernels.SquareSum) {
	for _, p := range c.Squares() {
		c.model.Layout.Pieces(p.Range, func(q *model.Param, local shard.Range) {
			if q.Counts {
				x := local.Shift(q.Off - p.Lo)
				c.r.seen.Sums.SumSquares(sum, p.G.Range(x.Lo, x.Hi))
			}
		})
	}
}

// keepWeights copies the weights of the shards, where changes are recorded.
func (c *chunk) keepWeights() error {
	shards := c.Shards()
	if c.prev == nil {
		for _, p := range shards {
			t, err := c.r.meter.Alloc(names.MemEvidence, p.Len())
			if err != nil {
				return err
			}
			c.prev = append(c.prev, t)
		}
	}
	for i, p := range shards {
		c.r.be.Copy(c.prev[i], p.W)
	}
	return nil
}

// recordUpdate records what the optimizer's step changed and, where this rank
// owns the weights alone and others wait for them, what it made of them.
func (c *chunk) recordUpdate(step int) error {
	weights, replicated := c.Replicated()
	for i, p := range c.Shards() {
		c.digester(replicated).Changed(step, p.W, c.prev[i], p.Range)
		if !weights || replicated {
			continue
		}
		if err := c.digester(replicated).Digests(trace.Event{Step: step, What: trace.Updated}, p.W, p.Range); err != nil {
			return err
		}
	}
	return nil
}

// digester is the recorder for state that data-parallel ranks hold replicated
// or not.
func (c *chunk) digester(replicated bool) *parallel.Digester {
	ev := c.ev
	ev.Once = !replicated || c.r.dp.Rank() == 0
	return &ev
}
