// Package parallel spreads training over ranks: which micro-batches a rank
// runs, how its workers' gradients are summed, where gradients, optimizer state
// and weights live (plain data parallelism and the ZeRO stages), and how the
// ranks' parts meet. It never looks at the model's arithmetic.
package parallel

import (
	"context"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Updater owns the weights, gradients and moments of one model part over the
// data-parallel ranks. The order of calls in a step is Begin; per worker
// BeginWorker before its first backward pass and EndWorker after its last, and
// Enter before every pass; then Finish, the optimizer on Shards, Publish.
type Updater interface {
	model.Hooks
	// Init makes the initial weights: each rank builds what it holds by fill;
	// where weights are replicated rank 0 of the group broadcasts its own.
	Init(ctx context.Context, fill func(p *model.Param, local shard.Range, dst kernels.Tensor)) error
	Begin(step int)
	BeginWorker(mb *MicroBatch)
	Enter(mb *MicroBatch)
	EndWorker(ctx context.Context, mb *MicroBatch) error
	// Finish completes the reductions over data-parallel ranks.
	Finish(ctx context.Context) error
	// Loss is the summed loss of the global batch after Finish (last stage).
	Loss() kernels.Tensor
	// Shards are what this rank updates. The list is valid until the next call.
	Shards() []Shard
	// Squares are the shards whose squares this rank adds to the global norm; they
	// may share the list of Shards.
	Squares() []Shard
	// Tied gives the shards of the embedding's (head false) or the tied head's
	// gradient and, after Publish, weights that this rank holds; the two lists
	// have equal lengths, on whichever ranks they are.
	Tied(head bool) (grads, weights []kernels.Tensor)
	// Publish brings the updated weights to every rank that holds them.
	Publish(ctx context.Context) error
	// Weights lists the weights at rest.
	Weights() []Shard
	// Replicated says whether data-parallel ranks hold equal Weights, and equal
	// moments.
	Replicated() (weights, moments bool)
	// Spans names the buffers that no other rank may share.
	Spans() map[string]kernels.Tensor
}

// Shard is a range of the rank's flat layout with the tensors that hold it.
type Shard struct {
	shard.Range
	W, G kernels.Tensor
	M    []kernels.Tensor
}

// Setup is what updaters are made from.
type Setup struct {
	Model    *model.Model
	Plan     plan.Plan
	DP       comm.Communicator // collectives between passes, and within them where they do not overlap
	Overlap  comm.Communicator // the same ranks, for operations beside the computation
	Meter    *Meter
	Digester *Digester
	Moments  int  // buffers per element
	Workers  bool // record the digest of each worker's gradient
	// Poison fills released weights with NaN.
	Poison bool
	Queue  *comm.Queue // runs Overlap's operations
	// Cut changes how the layout is cut; nil leaves it as Buckets has it.
	Cut func([]Bucket) []Bucket
}

// New makes the updater of the plan's ZeRO stage.
func New(s Setup) (Updater, error) {
	n := len(s.Plan.RankWorkers(s.Model.Config(), 0))
	b := &base{Setup: s, be: s.Meter.For(names.MemOther), layout: &s.Model.Layout, workers: n}
	var err error
	if b.loss, err = NewCounter(s.Meter, names.MemOther, 1, n); err != nil {
		return nil, err
	}
	if b.buckets, err = Buckets(s.Plan, s.Model.Config(), b.layout); err != nil {
		return nil, err
	}
	if s.Cut != nil {
		b.buckets = s.Cut(b.buckets)
	}
	if s.Plan.Zero >= 2 {
		return newSharded(b)
	}
	return newReplicated(b)
}

// base is what all updaters share.
type base struct {
	Setup
	be      kernels.Backend
	layout  *model.Layout
	workers int
	buckets []Bucket // of the owned range, then of the head source
	loss    *Counter
	step    int
	mb      *MicroBatch
	labels  comm.Labels // of operations on DP
	updates shardList
	weights kernels.Tensor   // all of the layout's, but for stage 3
	moments []kernels.Tensor // of the own elements of all buckets, one after another
}

// shardList is a list of shards that is made again and again in place: where a
// shard's gradient lies may change from step to step.
type shardList []Shard

// add appends a shard whose moments lie at at in each of moments.
func (l *shardList) add(own shard.Range, w, g kernels.Tensor, moments []kernels.Tensor, at shard.Range) {
	n := len(*l)
	if n == cap(*l) {
		*l = append(*l, Shard{})
	}
	*l = (*l)[:n+1]
	p := &(*l)[n]
	*p = Shard{Range: own, W: w, G: g, M: p.M[:0]}
	for _, m := range moments {
		p.M = append(p.M, m.Range(at.Lo, at.Hi))
	}
}

func (b *base) Begin(step int)       { b.step = step }
func (b *base) Enter(mb *MicroBatch) { b.mb = mb }
func (b *base) Loss() kernels.Tensor { return b.loss.Acc() }

// leaf records that the current worker's gradient of unit u is complete and
// enters the sum over workers.
func (b *base) leaf(u int, grad kernels.Tensor) error {
	if !b.mb.Present {
		return nil
	}
	b.Digester.Record(trace.Event{Kind: trace.KindLeaf, Step: b.step, Unit: b.layout.Units[u].Name, Worker: b.mb.Worker})
	if !b.Workers {
		return nil
	}
	// A worker's gradient exists on one data-parallel rank only: it counts there.
	ev := *b.Digester
	ev.Once, ev.Capture = true, false
	return ev.Digests(trace.Event{Step: b.step, What: trace.WorkerGrad, Worker: b.mb.Worker}, grad, b.layout.Units[u].Range)
}

// on labels an operation on DP that moves elements r.
func (b *base) on(ctx context.Context, name string, r shard.Range) context.Context {
	return b.labels.On(ctx, b.label(name, r))
}

// label describes an operation on elements r for its record.
func (b *base) label(name string, r shard.Range) comm.Label {
	return comm.Label{Group: names.DP, Tensor: name, Lo: int64(r.Lo), Hi: int64(r.Hi), Step: b.step}
}

// beside is label for an operation on Overlap.
func (b *base) beside(name string, r shard.Range) comm.Label {
	l := b.label(name, r)
	l.Overlap = true
	return l
}

// allocWeights allocates all weights and binds the model to them.
func (b *base) allocWeights() (err error) {
	if b.weights, err = b.Meter.Alloc(names.MemWeights, b.layout.Weights); err != nil {
		return err
	}
	for _, u := range b.held() {
		b.Model.BindWeights(u, b.unit(b.weights, u))
	}
	return nil
}

// allocMoments allocates the moments of what this rank updates.
func (b *base) allocMoments() error {
	for range b.Moments {
		m, err := b.Meter.Alloc(names.MemMoments, b.holding().Moments)
		if err != nil {
			return err
		}
		b.moments = append(b.moments, m)
	}
	return nil
}

// initWeights builds all weights and takes rank 0's.
func (b *base) initWeights(ctx context.Context, fill func(*model.Param, shard.Range, kernels.Tensor)) error {
	b.step = -1
	b.layout.Pieces(shard.Range{Hi: b.layout.Weights}, func(p *model.Param, local shard.Range) {
		fill(p, local, b.weights.Range(p.Off+local.Lo, p.Off+local.Hi))
	})
	for _, u := range b.held() {
		unit := &b.layout.Units[u]
		if err := b.DP.Broadcast(b.on(ctx, unit.Name, unit.Range), b.unit(b.weights, u), 0); err != nil {
			return err
		}
	}
	return nil
}

// wholeWeights is State where every rank holds all weights.
func (b *base) wholeWeights() []Shard {
	return []Shard{{Range: shard.Range{Hi: b.layout.Weights}, W: b.weights}}
}

// unit is what a flat buffer holds of unit u.
func (b *base) unit(flat kernels.Tensor, u int) kernels.Tensor {
	x := b.layout.Units[u].Range
	return flat.Range(x.Lo, x.Hi)
}

// held lists the units that have weights in the rank's parameter buffer.
func (b *base) held() []int {
	var out []int
	for u := range b.layout.Units {
		if b.layout.Units[u].Hi <= b.layout.Weights {
			out = append(out, u)
		}
	}
	return out
}

// holding is what this rank holds.
func (b *base) holding() Holding { return Hold(b.buckets, b.layout, b.Plan.Zero, b.DP.Rank()) }
