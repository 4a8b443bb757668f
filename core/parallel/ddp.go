// Package parallel spreads training over ranks: which micro-batches a rank
// runs, how its workers' gradients are summed, and how the ranks' gradients
// meet. It never looks at the model's arithmetic.
package parallel

import (
	"context"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// DDP is plain data parallelism: every rank holds all weights, gradients and
// moments of its part. During the backward pass of a rank's last micro-batch
// each unit's gradient is reduced, in reverse order of the layers, as soon as
// it is complete, beside the computation. It is the model's Hooks.
type DDP struct {
	Model    *model.Model
	Grads    *Gradients
	Weights  kernels.Tensor
	Comm     comm.Communicator // data-parallel group
	Queue    *comm.Queue       // runs Comm's reductions during the backward pass
	Evidence *Evidence
	// RecordWorkers records the digest of each worker's gradient.
	RecordWorkers bool

	step int
	item *Item
}

// Unit is the weights of unit u; absent for a tied head that reads the embedding's.
func (d *DDP) Unit(u int) kernels.Tensor {
	r := d.Model.Layout.Units[u].Range
	if r.Hi > d.Model.Layout.Weights {
		return kernels.Tensor{}
	}
	return d.Weights.Range(r.Lo, r.Hi)
}

// Begin starts a step.
func (d *DDP) Begin(step int) { d.step = step }

// BeginWorker clears the accumulator for the worker of it.
func (d *DDP) BeginWorker(it *Item) { d.Grads.Start(d.Model, d.Unit, it.Present) }

// Enter says which micro-batch the next pass belongs to.
func (d *DDP) Enter(it *Item) { d.item = it }

// EndWorker closes the worker of it, after its last backward pass.
func (d *DDP) EndWorker(it *Item) { d.Grads.End(it.Index) }

// Before is called by the model; all weights are at hand.
func (d *DDP) Before(context.Context, int, model.Phase) error { return nil }

// After is called by the model when a unit is done with.
func (d *DDP) After(_ context.Context, u int, ph model.Phase) error {
	it, unit := d.item, d.Model.Layout.Units[u].Name
	what := trace.Forward
	if ph == model.Backward {
		what = trace.Backward
	}
	d.Evidence.Record(trace.Event{Kind: trace.KindPhase, Step: d.step, What: what, Unit: unit, Worker: it.Worker, Micro: it.Micro})
	if ph == model.Forward || !it.EndsWorker {
		return nil
	}
	if it.Present {
		if err := d.recordWorker(u, it); err != nil {
			return err
		}
	}
	d.Grads.Fold(u, it.Index)
	if it.EndsStep {
		d.issue(u)
	}
	return nil
}

func (d *DDP) recordWorker(u int, it *Item) error {
	d.Evidence.Record(trace.Event{Kind: trace.KindLeaf, Step: d.step, Unit: d.Model.Layout.Units[u].Name, Worker: it.Worker})
	if !d.RecordWorkers {
		return nil
	}
	r := d.Model.Layout.Units[u].Range
	// Every worker's gradient exists on one rank only, so it counts there.
	ev := *d.Evidence
	ev.Once, ev.Capture = true, false
	return ev.Digests(trace.Event{Step: d.step, What: trace.WorkerGrad, Worker: it.Worker}, d.Grads.Unit(u), r)
}

// issue hands the reduction of unit u to the queue.
func (d *DDP) issue(u int) {
	unit, x := &d.Model.Layout.Units[u], d.Grads.Unit(u)
	d.Evidence.Record(trace.Event{Kind: trace.KindIssue, Step: d.step, Unit: unit.Name})
	label := comm.Label{Group: "dp", Tensor: unit.Name, Lo: int64(unit.Lo), Hi: int64(unit.Hi), Step: d.step}
	d.Queue.Submit(func(ctx context.Context) error {
		return d.Comm.AllReduce(comm.WithLabel(ctx, label), x, kernels.Sum)
	})
}

// Finish waits for the reductions, reduces the loss, and adds the two sources
// of a tied embedding: embedding + head. Afterwards Grads.Flat holds the
// gradient of the global batch in its owned prefix.
func (d *DDP) Finish(ctx context.Context) error {
	if err := d.Queue.Wait(); err != nil {
		return err
	}
	label := comm.Label{Group: "dp", Tensor: trace.Loss, Hi: 1, Step: d.step}
	if err := d.Comm.AllReduce(comm.WithLabel(ctx, label), d.Grads.Loss(), kernels.Sum); err != nil {
		return err
	}
	l, part := &d.Model.Layout, d.Model.Part()
	if l.Grads > l.Owned && part.First {
		embed, head := d.Grads.Unit(0), d.Grads.Unit(len(l.Units)-1)
		d.Evidence.Backend.Add(embed, embed, head)
	}
	return nil
}

// Owned is the range of the flat buffers that this rank updates.
func (d *DDP) Owned() shard.Range { return shard.Range{Hi: d.Model.Layout.Owned} }
