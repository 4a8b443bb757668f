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
	shards *Counter         // own elements of every bucket, one after another
	off    []int            // where each bucket's own elements start
	within [][]int          // by unit: the buckets that lie in it
	full   kernels.Tensor   // full gradient where a worker has several micro-batches
	unitG  []kernels.Tensor // full gradient of each unit that is in its backward pass
	gather *gather          // stage 3
}

func newSharded(b *base) (*sharded, error) {
	s := &sharded{base: b, unitG: make([]kernels.Tensor, len(b.layout.Units))}
	n := 0
	for i := range b.buckets {
		s.off = append(s.off, n)
		n += b.buckets[i].Own(b.DP.Rank()).Len()
	}
	for u := range b.layout.Units {
		s.within = append(s.within, b.inUnit(u))
	}
	var err error
	if b.Plan.Zero == 2 {
		err = b.allocWeights()
	} else {
		s.gather, err = newGather(s)
	}
	if err != nil {
		return nil, err
	}
	if s.shards, err = NewCounter(b.Meter, names.MemGrads, b.holding().Grads, b.workers); err != nil {
		return nil, err
	}
	if WholeGradient(b.Plan, b.Model.Config()) {
		if s.full, err = b.Meter.Alloc(names.MemGrads, b.layout.Grads); err != nil {
			return nil, err
		}
	}
	for u := range b.layout.Units {
		if unit := &b.layout.Units[u]; s.full.Absent() || s.gather != nil && unit.Hi <= b.layout.Weights {
			b.Meter.Lend(unit.Len())
		}
	}
	return s, b.allocMoments()
}

// at is where bucket i's own elements lie in a buffer of shards.
func (s *sharded) at(i int) shard.Range {
	return shard.Range{Lo: s.off[i], Hi: s.off[i] + s.buckets[i].Own(s.DP.Rank()).Len()}
}

// inUnit lists the buckets that lie in unit u.
func (b *base) inUnit(u int) []int {
	var out []int
	for i := range b.buckets {
		if b.buckets[i].Unit == u {
			out = append(out, i)
		}
	}
	return out
}

func (s *sharded) Init(ctx context.Context, fill func(*model.Param, shard.Range, kernels.Tensor)) error {
	if s.gather != nil {
		return s.gather.init(fill)
	}
	return s.initWeights(ctx, fill)
}

func (s *sharded) BeginWorker(mb *MicroBatch) {
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
func (s *sharded) EndWorker(ctx context.Context, mb *MicroBatch) error {
	if s.Model.Part().Last {
		if !mb.Present {
			s.be.Fill(s.loss.Acc(), math.Copysign(0, -1))
		}
		if err := s.DP.AllReduce(s.on(ctx, trace.Loss, shard.Range{Hi: 1}), s.loss.Acc(), kernels.Sum); err != nil {
			return err
		}
	}
	s.loss.Fold(shard.Range{Hi: 1}, mb.Index)
	s.loss.End(mb.Index)
	s.shards.End(mb.Index)
	return nil
}

func (s *sharded) Before(ctx context.Context, u int, ph model.Phase) error {
	if s.gather != nil {
		if err := s.gather.acquire(u, ph); err != nil {
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
	if ph == model.Forward || !s.mb.EndsWorker {
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
	if !s.mb.Present {
		s.be.Fill(g, math.Copysign(0, -1))
	}
	s.Digester.Record(trace.Event{Kind: trace.KindIssue, Step: s.step, Unit: s.layout.Units[u].Name})
	for _, i := range s.within[u] {
		bucket, at := &s.buckets[i], s.at(i)
		src, dst := g.Range(bucket.Lo-lo, bucket.Hi-lo), s.shards.Acc().Range(at.Lo, at.Hi)
		if err := s.DP.ReduceScatter(s.on(ctx, bucket.Name, bucket.Range), dst, src, bucket.Bounds, kernels.Sum); err != nil {
			return err
		}
		s.shards.Fold(at, s.mb.Index)
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

func (s *sharded) Shards() []Shard {
	s.updates = s.updates[:0]
	for i := range s.buckets {
		own, at := s.buckets[i].Own(s.DP.Rank()), s.at(i)
		if s.buckets[i].Source || own.Empty() {
			continue
		}
		s.updates.add(own, s.weightAt(i), s.shards.Acc().Range(at.Lo, at.Hi), s.moments, at)
	}
	return s.updates
}

// weightAt is where bucket i's own weights lie.
func (s *sharded) weightAt(i int) kernels.Tensor {
	if s.gather != nil {
		at := s.at(i)
		return s.gather.shard.Range(at.Lo, at.Hi)
	}
	own := s.buckets[i].Own(s.DP.Rank())
	return s.weights.Range(own.Lo, own.Hi)
}

func (s *sharded) Squares() []Shard { return s.Shards() }

func (s *sharded) Tied(head bool) (grads, weights []kernels.Tensor) {
	u := 0
	if head {
		u = len(s.layout.Units) - 1
	}
	for _, i := range s.within[u] {
		at := s.at(i)
		grads = append(grads, s.shards.Acc().Range(at.Lo, at.Hi))
		if s.gather != nil && s.buckets[i].Hi <= s.layout.Weights {
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
	for i := range s.buckets {
		bucket := &s.buckets[i]
		if bucket.Source {
			continue
		}
		if err := s.DP.AllGather(s.on(ctx, bucket.Name, bucket.Range), s.weights.Range(bucket.Lo, bucket.Hi), s.weightAt(i), bucket.Bounds); err != nil {
			return err
		}
	}
	return nil
}

func (s *sharded) Weights() []Shard {
	if s.gather == nil {
		return s.wholeWeights()
	}
	var out []Shard
	for i := range s.buckets {
		if own := s.buckets[i].Own(s.DP.Rank()); s.buckets[i].Hi <= s.layout.Weights && !own.Empty() {
			out = append(out, Shard{Range: own, W: s.weightAt(i)})
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
