package parallel

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// gather holds the weights of ZeRO stage 3: at rest a rank has its own elements
// only; a unit is gathered before use, while the next one of the pass is
// already under way, and released after use.
type gather struct {
	s     *sharded
	shard kernels.Tensor // own elements, as the shards of the gradients lie
	units []gathered     // by unit; a tied head on the embedding's rank uses unit 0
	order map[model.Phase][]int

	labels comm.Labels // of the queue's operations
}

// gathered is the state of one unit.
type gathered struct {
	buf     kernels.Tensor // absent while the unit is sharded
	waiting bool           // gather is under way, as ticket says
	ticket  comm.Ticket
	uses    int
	gather  func(context.Context) error
}

func newGather(s *sharded) (*gather, error) {
	shard, err := s.Meter.Alloc(names.MemWeights, s.holding().Weights)
	g := &gather{s: s, shard: shard, units: make([]gathered, len(s.layout.Units)),
		order: map[model.Phase][]int{model.Forward: s.layout.Order(model.Forward), model.Backward: s.layout.Order(model.Backward)}}
	for u := range g.units {
		st := &g.units[u]
		st.gather = func(ctx context.Context) error { return g.collect(ctx, u, st.buf) }
	}
	return g, err
}

// init builds this rank's own elements.
func (g *gather) init(fill func(*model.Param, shard.Range, kernels.Tensor)) error {
	g.s.step = -1
	for i := range g.s.buckets {
		bucket := &g.s.buckets[i]
		if bucket.Hi > g.s.layout.Weights {
			continue
		}
		own, at := bucket.Own(g.s.DP.Rank()), g.s.at(i)
		g.s.layout.Pieces(own, func(p *model.Param, local shard.Range) {
			lo := p.Off + local.Lo - own.Lo + at.Lo
			fill(p, local, g.shard.Range(lo, lo+local.Len()))
		})
	}
	return nil
}

// next is the unit that the pass uses after u; ok is false at its end.
func (g *gather) next(u int, ph model.Phase) (n int, ok bool) {
	order := g.order[ph]
	i := slices.Index(order, u) + 1
	if i == len(order) {
		return 0, false
	}
	return order[i], true
}

// acquire makes unit u's weights usable and starts to gather the next unit's.
func (g *gather) acquire(u int, ph model.Phase) error {
	src := g.s.layout.Source(u)
	if err := g.start(src); err != nil {
		return err
	}
	if n, ok := g.next(u, ph); ok {
		if err := g.start(g.s.layout.Source(n)); err != nil {
			return err
		}
	}
	st := &g.units[src]
	if st.waiting {
		if err := g.s.Queue.WaitFor(st.ticket); err != nil {
			return fmt.Errorf("gather of unit %s: %w", g.s.layout.Units[src].Name, err)
		}
		st.waiting = false
	}
	st.uses++
	g.s.Model.BindWeights(src, st.buf)
	g.record(names.Use, src)
	return nil
}

// record notes what becomes of unit u; in checking runs with the digest of what
// a pass finds in it ("use") and leaves in it ("release").
func (g *gather) record(what string, u int) {
	unit := &g.s.layout.Units[u]
	ev := trace.Event{Kind: trace.KindGather, Step: g.s.step, What: what, Unit: unit.Name, Micro: g.s.mb.Micro, Count: int64(unit.Len())}
	if g.s.Poison && what != names.Gather {
		sum := new(kernels.Digest)
		g.s.layout.Pieces(unit.Range, func(p *model.Param, local shard.Range) {
			at := local.Shift(p.Off - unit.Lo)
			AddDigest(sum, g.s.Digester.Evidence.Sums, p, local, g.units[u].buf.Range(at.Lo, at.Hi))
		})
		ev.Digest = sum
	}
	g.s.Digester.Evidence.Record(ev, nil, nil)
}

// start begins to gather unit u unless that is under way or done.
func (g *gather) start(u int) error {
	st := &g.units[u]
	if !st.buf.Absent() {
		return nil
	}
	buf, err := g.s.Meter.Borrow(names.MemWeights, g.s.layout.Units[u].Len())
	if err != nil {
		return err
	}
	st.buf, st.waiting = buf, true
	g.record(names.Gather, u)
	st.ticket = g.s.Queue.Submit(st.gather)
	return nil
}

// collect gathers the buckets of unit u: an all-gather where all own a part, a
// broadcast where one rank owns everything.
func (g *gather) collect(ctx context.Context, u int, buf kernels.Tensor) error {
	s := g.s
	for _, i := range s.within[u] {
		bucket, lo := &s.buckets[i], s.layout.Units[u].Lo
		all := buf.Range(bucket.Lo-lo, bucket.Hi-lo)
		lctx := g.labels.On(ctx, s.beside(bucket.Name, bucket.Range))
		root := owner(bucket.Bounds)
		if bucket.Bounds[root+1]-bucket.Bounds[root] < bucket.Len() || s.Plan.Shard != plan.ShardTensors {
			if err := s.Overlap.AllGather(lctx, all, s.weightAt(i), bucket.Bounds); err != nil {
				return err
			}
			continue
		}
		if s.DP.Rank() == root {
			s.be.Copy(all, s.weightAt(i))
		}
		if err := s.Overlap.Broadcast(lctx, all, root); err != nil {
			return err
		}
	}
	return nil
}

// release ends one use of unit u; after the last its memory is given back,
// poisoned first in checking runs.
func (g *gather) release(u int) error {
	src := g.s.layout.Source(u)
	st := &g.units[src]
	if st.uses == 0 {
		return fmt.Errorf("release of unit %s: it is sharded, not gathered", g.s.layout.Units[src].Name)
	}
	if st.uses--; st.uses > 0 {
		return nil
	}
	g.record(names.Release, src)
	if g.s.Poison {
		g.s.be.Fill(st.buf, math.NaN())
	}
	g.s.Model.BindWeights(src, kernels.Tensor{})
	g.s.Meter.Return(st.buf)
	st.buf = kernels.Tensor{}
	return nil
}
