package parallel

import (
	"context"

	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// replicated is data parallelism with all weights and gradients on every rank.
// During the backward pass of a rank's last micro-batch each unit's gradient is
// reduced, in reverse order of the layers, as soon as it is complete, beside the
// computation. Plain DDP updates everything everywhere; ZeRO stage 1 shards the
// moments: the flat form reduce-scatters the whole vector after the backward
// pass, steps on the shard and all-gathers the weights; the block forms reduce
// like DDP, then the owner of a block steps and broadcasts.
type replicated struct {
	*base
	grads   *Counter
	weights kernels.Tensor
	moments []kernels.Tensor // of the pieces, one after another
	owned   []shard.Range    // what this rank updates
	squares [1]Piece
	scatter bool                          // the flat form of stage 1
	issued  []kernels.Tensor              // by unit: the gradient that was handed over
	reduce  []func(context.Context) error // by unit: its all-reduce
}

func newReplicated(b *base) (*replicated, error) {
	r := &replicated{base: b, scatter: b.segs[0].Bounds != nil && b.segs[0].Unit < 0}
	var err error
	if r.weights, err = b.Meter.Alloc(names.MemWeights, b.layout.Weights); err != nil {
		return nil, err
	}
	if r.grads, err = NewCounter(b.Meter, names.MemGrads, b.layout.Grads, b.workers); err != nil {
		return nil, err
	}
	r.owned = r.own()
	n := 0
	for _, own := range r.owned {
		n += own.Len()
	}
	for range b.Moments {
		m, err := b.Meter.Alloc(names.MemMoments, n)
		if err != nil {
			return nil, err
		}
		r.moments = append(r.moments, m)
	}
	for _, u := range b.held() {
		b.Model.BindWeights(u, r.unit(r.weights, u))
	}
	r.issued = make([]kernels.Tensor, len(b.layout.Units))
	for u := range b.layout.Units {
		r.reduce = append(r.reduce, func(ctx context.Context) error { return r.Overlap.AllReduce(ctx, r.issued[u], kernels.Sum) })
	}
	return r, nil
}

// own lists the ranges that this rank updates.
func (r *replicated) own() []shard.Range {
	var out []shard.Range
	for i := range r.segs {
		s := &r.segs[i]
		switch {
		case s.Source:
		case s.Bounds == nil:
			out = append(out, s.Range)
		default:
			if own := s.Own(r.DP.Rank()); !own.Empty() {
				out = append(out, own)
			}
		}
	}
	return out
}

func (r *replicated) unit(flat kernels.Tensor, u int) kernels.Tensor {
	x := r.layout.Units[u].Range
	return flat.Range(x.Lo, x.Hi)
}

func (r *replicated) Init(ctx context.Context, fill func(*model.Param, shard.Range, kernels.Tensor)) error {
	r.step = -1
	r.layout.Pieces(shard.Range{Hi: r.layout.Weights}, func(p *model.Param, local shard.Range) {
		fill(p, local, r.weights.Range(p.Off+local.Lo, p.Off+local.Hi))
	})
	for _, u := range r.held() {
		unit := &r.layout.Units[u]
		if err := r.DP.Broadcast(r.on(ctx, unit.Name, unit.Range), r.unit(r.weights, u), 0); err != nil {
			return err
		}
	}
	return nil
}

func (r *replicated) BeginWorker(it *Item) {
	r.grads.Start(it.Present)
	r.loss.Start(it.Present)
	for u := range r.layout.Units {
		r.Model.BindGrads(u, r.unit(r.grads.Acc(), u))
	}
	r.Model.BindLoss(r.loss.Acc())
}

func (r *replicated) EndWorker(_ context.Context, it *Item) error {
	r.loss.Fold(shard.Range{Hi: 1}, it.Index)
	r.loss.End(it.Index)
	r.grads.End(it.Index)
	return nil
}

// Before is called by the model; all weights are at hand.
func (r *replicated) Before(context.Context, int, model.Phase) error { return nil }

func (r *replicated) After(_ context.Context, u int, ph model.Phase) error {
	it := r.item
	if ph == model.Forward || !it.EndsWorker {
		return nil
	}
	if err := r.leaf(u, r.unit(r.grads.Acc(), u)); err != nil {
		return err
	}
	r.grads.Fold(r.layout.Units[u].Range, it.Index)
	if it.EndsStep && !r.scatter {
		r.issue(u)
	}
	return nil
}

// issue hands the all-reduce of unit u to the queue.
func (r *replicated) issue(u int) {
	unit := &r.layout.Units[u]
	r.issued[u] = r.unit(r.grads.Acc(), u)
	r.Queue.SubmitFor(r.beside(unit.Name, unit.Range), r.reduce[u])
}

func (r *replicated) Finish(ctx context.Context) error {
	if err := r.Queue.Wait(); err != nil {
		return err
	}
	if r.scatter {
		for i := range r.segs {
			s, own := &r.segs[i], r.segs[i].Own(r.DP.Rank())
			src, dst := r.grads.Acc().Range(s.Lo, s.Hi), r.grads.Acc().Range(own.Lo, own.Hi)
			if err := r.DP.ReduceScatter(r.on(ctx, s.Name, s.Range), dst, src, s.Bounds, kernels.Sum); err != nil {
				return err
			}
		}
	}
	if !r.Model.Part().Last {
		return nil
	}
	return r.DP.AllReduce(r.on(ctx, trace.Loss, shard.Range{Hi: 1}), r.loss.Acc(), kernels.Sum)
}

// Pieces binds the owned ranges to the accumulator as it stands.
func (r *replicated) Pieces() []Piece {
	r.pieces = r.pieces[:0]
	off := 0
	for _, own := range r.owned {
		at := shard.Range{Lo: off, Hi: off + own.Len()}
		r.pieces.add(own, r.weights.Range(own.Lo, own.Hi), r.grads.Acc().Range(own.Lo, own.Hi), r.moments, at)
		off = at.Hi
	}
	return r.pieces
}

// Squares is what this rank owns, or its even share where all own everything.
func (r *replicated) Squares() []Piece {
	if r.segs[0].Bounds != nil {
		return r.Pieces()
	}
	x := shard.Part{Index: r.DP.Rank(), Size: r.DP.Size()}.Of(r.layout.Owned)
	r.squares[0] = Piece{Range: x, G: r.grads.Acc().Range(x.Lo, x.Hi)}
	return r.squares[:]
}

func (r *replicated) Tied(head bool) (grads, weights []kernels.Tensor) {
	u := 0
	if head {
		u = len(r.layout.Units) - 1
	}
	x := r.layout.Units[u].Range
	if x.Hi <= r.layout.Weights {
		weights = []kernels.Tensor{r.weights.Range(x.Lo, x.Hi)}
	}
	if r.scatter {
		for i := range r.segs {
			if s := &r.segs[i]; s.Source == head {
				x = x.Intersect(s.Own(r.DP.Rank()))
				break
			}
		}
	}
	return []kernels.Tensor{r.grads.Acc().Range(x.Lo, x.Hi)}, weights
}

func (r *replicated) Publish(ctx context.Context) error {
	if r.segs[0].Bounds == nil {
		return nil
	}
	for i := range r.segs {
		s := &r.segs[i]
		if s.Source {
			continue
		}
		ctx, all, own := r.on(ctx, s.Name, s.Range), r.weights.Range(s.Lo, s.Hi), s.Own(r.DP.Rank())
		var err error
		if r.scatter {
			err = r.DP.AllGather(ctx, all, r.weights.Range(own.Lo, own.Hi), s.Bounds)
		} else {
			err = r.DP.Broadcast(ctx, all, owner(s.Bounds))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// owner is the rank that whole gave everything to.
func owner(bounds []int) int {
	i := 0
	for i < len(bounds)-2 && bounds[i+1] == 0 {
		i++
	}
	return i
}

func (r *replicated) State() []Piece {
	all := shard.Range{Hi: r.layout.Weights}
	return []Piece{{Range: all, W: r.weights}}
}

func (r *replicated) Replicated() (weights, moments bool) { return true, r.segs[0].Bounds == nil }

func (r *replicated) Spans() map[string]kernels.Tensor {
	return spans(r.weights, r.grads, r.moments)
}
