package parallel

import (
	"context"
	"fmt"
	"math"

	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// sharded is ZeRO stages 2 and 3. Workers are dealt out round by round; as soon
// as a worker's gradient of a unit is complete it is reduce-scattered over the
// ranks, and the tree over rounds is kept on shards. With one micro-batch per
// worker a unit's full gradient lives only during the unit's backward pass.
// Stage 3 also shards the weights (gather.go).
type sharded struct {
	*base
	shards  *Counter         // own elements of every segment, one after another
	off     []int            // where each segment's own elements start
	within  [][]int          // by unit: the segments that lie in it
	full    kernels.Tensor   // full gradient where a worker has several micro-batches
	unitG   []kernels.Tensor // full gradient of each unit that is in its backward pass
	weights kernels.Tensor   // stage 2: all of them
	moments []kernels.Tensor
	owned   int     // own elements that have moments: all but the head source's
	gather  *gather // stage 3
}

func newSharded(b *base) (*sharded, error) {
	s := &sharded{base: b, unitG: make([]kernels.Tensor, len(b.layout.Units))}
	n := 0
	for i := range b.segs {
		s.off = append(s.off, n)
		n += b.segs[i].Own(b.DP.Rank()).Len()
		if !b.segs[i].Source {
			s.owned = n
		}
	}
	for u := range b.layout.Units {
		s.within = append(s.within, b.inUnit(u))
	}
	var err error
	if b.Plan.Zero == 2 {
		if s.weights, err = b.Meter.Alloc(names.MemWeights, b.layout.Weights); err != nil {
			return nil, err
		}
		for _, u := range b.held() {
			r := b.layout.Units[u].Range
			b.Model.BindWeights(u, s.weights.Range(r.Lo, r.Hi))
		}
	} else if s.gather, err = newGather(s); err != nil {
		return nil, err
	}
	if s.shards, err = NewCounter(b.Meter, names.MemGrads, n, b.workers); err != nil {
		return nil, err
	}
	if b.Plan.MicroBatches > b.workers {
		if s.full, err = b.Meter.Alloc(names.MemGrads, b.layout.Grads); err != nil {
			return nil, err
		}
	}
	for u := range b.layout.Units {
		if unit := &b.layout.Units[u]; s.full.Absent() || s.gather != nil && unit.Hi <= b.layout.Weights {
			b.Meter.Lend(unit.Len())
		}
	}
	for range b.Moments {
		m, err := b.Meter.Alloc(names.MemMoments, s.owned)
		if err != nil {
			return nil, err
		}
		s.moments = append(s.moments, m)
	}
	return s, nil
}

// at is where segment i's own elements lie in a buffer of shards.
func (s *sharded) at(i int) shard.Range {
	return shard.Range{Lo: s.off[i], Hi: s.off[i] + s.segs[i].Own(s.DP.Rank()).Len()}
}

// inUnit lists the segments that lie in unit u.
func (b *base) inUnit(u int) []int {
	var out []int
	for i := range b.segs {
		if b.segs[i].Unit == u {
			out = append(out, i)
		}
	}
	return out
}

func (s *sharded) Init(ctx context.Context, fill func(*model.Param, shard.Range, kernels.Tensor)) error {
	s.step = -1
	if s.gather != nil {
		return s.gather.init(fill)
	}
	s.layout.Pieces(shard.Range{Hi: s.layout.Weights}, func(p *model.Param, local shard.Range) {
		fill(p, local, s.weights.Range(p.Off+local.Lo, p.Off+local.Hi))
	})
	for _, u := range s.held() {
		r := s.layout.Units[u].Range
		if err := s.DP.Broadcast(s.on(ctx, s.layout.Units[u].Name, r), s.weights.Range(r.Lo, r.Hi), 0); err != nil {
			return err
		}
	}
	return nil
}

func (s *sharded) BeginWorker(it *Item) {
	s.shards.Start(true) // an absent worker sends -0 and needs no flag
	s.loss.Start(true)
	s.Model.BindLoss(s.loss.Acc())
	if s.full.Absent() {
		return
	}
	s.be.Fill(s.full, 0)
	for u := range s.layout.Units {
		r := s.layout.Units[u].Range
		s.unitG[u] = s.full.Range(r.Lo, r.Hi)
		s.Model.BindGrads(u, s.unitG[u])
	}
}

// EndWorker reduces the round's loss and closes the round.
func (s *sharded) EndWorker(ctx context.Context, it *Item) error {
	if s.Model.Part().Last {
		if !it.Present {
			s.be.Fill(s.loss.Acc(), math.Copysign(0, -1))
		}
		if err := s.DP.AllReduce(s.on(ctx, trace.Loss, shard.Range{Hi: 1}), s.loss.Acc(), kernels.Sum); err != nil {
			return err
		}
	}
	s.loss.Fold(shard.Range{Hi: 1}, it.Index)
	s.loss.End(it.Index)
	s.shards.End(it.Index)
	return nil
}

func (s *sharded) Before(ctx context.Context, u int, ph model.Phase) error {
	if s.gather != nil {
		if err := s.gather.acquire(ctx, u, ph); err != nil {
			return err
		}
	}
	if ph == model.Forward || !s.full.Absent() {
		return nil
	}
	g, err := s.Meter.Borrow(names.MemGrads, s.layout.Units[u].Len())
	if err != nil {
		return err
	}
	s.be.Fill(g, 0)
	s.unitG[u] = g
	s.Model.BindGrads(u, g)
	return nil
}

func (s *sharded) After(ctx context.Context, u int, ph model.Phase) error {
	if s.gather != nil {
		if err := s.gather.release(u); err != nil {
			return err
		}
	}
	if ph == model.Forward || !s.item.EndsWorker {
		return nil
	}
	if err := s.leaf(u, s.unitG[u]); err != nil {
		return err
	}
	return s.scatter(ctx, u)
}

// scatter reduce-scatters the worker's gradient of unit u onto the shards and
// folds earlier rounds in; the full gradient is given back.
func (s *sharded) scatter(ctx context.Context, u int) error {
	g, lo := s.unitG[u], s.layout.Units[u].Lo
	if !s.item.Present {
		s.be.Fill(g, math.Copysign(0, -1))
	}
	s.Evidence.Record(trace.Event{Kind: trace.KindIssue, Step: s.step, Unit: s.layout.Units[u].Name})
	for _, i := range s.within[u] {
		seg, at := &s.segs[i], s.at(i)
		src, dst := g.Range(seg.Lo-lo, seg.Hi-lo), s.shards.Acc().Range(at.Lo, at.Hi)
		if err := s.DP.ReduceScatter(s.on(ctx, seg.Name, seg.Range), dst, src, seg.Bounds, kernels.Sum); err != nil {
			return err
		}
		s.shards.Fold(at, s.item.Index)
	}
	if s.full.Absent() {
		s.Meter.Return(g)
		s.unitG[u] = kernels.Tensor{}
		s.Model.BindGrads(u, kernels.Tensor{})
	}
	return nil
}

// Finish has nothing left to do: every round was reduced as it ended.
func (s *sharded) Finish(context.Context) error { return s.Queue.Wait() }

func (s *sharded) Pieces() []Piece {
	s.pieces = s.pieces[:0]
	for i := range s.segs {
		own, at := s.segs[i].Own(s.DP.Rank()), s.at(i)
		if s.segs[i].Source || own.Empty() {
			continue
		}
		s.pieces.add(own, s.weightAt(i), s.shards.Acc().Range(at.Lo, at.Hi), s.moments, at)
	}
	return s.pieces
}

// weightAt is where segment i's own weights lie.
func (s *sharded) weightAt(i int) kernels.Tensor {
	if s.gather != nil {
		at := s.at(i)
		return s.gather.shard.Range(at.Lo, at.Hi)
	}
	own := s.segs[i].Own(s.DP.Rank())
	return s.weights.Range(own.Lo, own.Hi)
}

func (s *sharded) Squares() []Piece { return s.Pieces() }

func (s *sharded) Tied(head bool) (grads, weights []kernels.Tensor) {
	u := 0
	if head {
		u = len(s.layout.Units) - 1
	}
	for _, i := range s.within[u] {
		at := s.at(i)
		grads = append(grads, s.shards.Acc().Range(at.Lo, at.Hi))
		if s.gather != nil && s.segs[i].Hi <= s.layout.Weights {
			weights = append(weights, s.weightAt(i))
		}
	}
	if r := s.layout.Units[u].Range; s.gather == nil && r.Hi <= s.layout.Weights {
		weights = append(weights, s.weights.Range(r.Lo, r.Hi))
	}
	return grads, weights
}

func (s *sharded) Publish(ctx context.Context) error {
	if s.gather != nil {
		return nil // gathered before the next use
	}
	for i := range s.segs {
		seg := &s.segs[i]
		if seg.Source {
			continue
		}
		if err := s.DP.AllGather(s.on(ctx, seg.Name, seg.Range), s.weights.Range(seg.Lo, seg.Hi), s.weightAt(i), seg.Bounds); err != nil {
			return err
		}
	}
	return nil
}

func (s *sharded) State() []Piece {
	if s.gather == nil {
		return []Piece{{Range: shard.Range{Hi: s.layout.Weights}, W: s.weights}}
	}
	var out []Piece
	for i := range s.segs {
		if own := s.segs[i].Own(s.DP.Rank()); s.segs[i].Hi <= s.layout.Weights && !own.Empty() {
			out = append(out, Piece{Range: own, W: s.weightAt(i)})
		}
	}
	return out
}

func (s *sharded) Replicated() (weights, moments bool) { return s.Plan.Zero == 2, false }

func (s *sharded) Spans() map[string]kernels.Tensor {
	w := s.weights
	if s.gather != nil {
		w = s.gather.shard
	}
	return spans(w, s.shards, s.moments)
}

func spans(weights kernels.Tensor, grads *Counter, moments []kernels.Tensor) map[string]kernels.Tensor {
	out := map[string]kernels.Tensor{trace.Weight: weights}
	for i, g := range grads.Buffers() {
		out[fmt.Sprintf("%s.%d", trace.Grad, i)] = g
	}
	for i, m := range moments {
		out[fmt.Sprintf("moment.%d", i)] = m
	}
	return out
}
