package parallel

import (
	"context"
	"fmt"
	"math"

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

	labels comm.Labels // of the queue's operations
}

// gathered is the state of one unit.
type gathered struct {
	buf     kernels.Tensor // absent while the unit is sharded
	waiting bool           // gather is under way: done has not given its value
	done    chan struct{}  // gives a value when the gather has ended
	err     error          // read after done
	uses    int
	gather  func(context.Context) error
}

func newGather(s *sharded) (*gather, error) {
	n := 0
	for i := range s.segs {
		if s.segs[i].Hi <= s.layout.Weights {
			n = s.off[i] + s.segs[i].Own(s.DP.Rank()).Len()
		}
	}
	shard, err := s.Meter.Alloc(names.MemWeights, n)
	g := &gather{s: s, shard: shard, units: make([]gathered, len(s.layout.Units))}
	for u := range g.units {
		st := &g.units[u]
		st.done = make(chan struct{}, 1)
		st.gather = func(ctx context.Context) error {
			defer func() { st.done <- struct{}{} }()
			st.err = g.collect(ctx, u, st.buf)
			return st.err
		}
	}
	return g, err
}

// init builds this rank's own elements.
func (g *gather) init(fill func(*model.Param, shard.Range, kernels.Tensor)) error {
	for i := range g.s.segs {
		seg := &g.s.segs[i]
		if seg.Hi > g.s.layout.Weights {
			continue
		}
		own, at := seg.Own(g.s.DP.Rank()), g.s.at(i)
		g.s.layout.Pieces(own, func(p *model.Param, local shard.Range) {
			lo := p.Off + local.Lo - own.Lo + at.Lo
			fill(p, local, g.shard.Range(lo, lo+local.Len()))
		})
	}
	return nil
}

// source is the unit whose weights unit u reads.
func (g *gather) source(u int) int {
	if g.s.layout.Units[u].Hi > g.s.layout.Weights {
		return 0
	}
	return u
}

// next is the unit that the pass uses after u; ok is false at its end.
func (g *gather) next(u int, ph model.Phase) (n int, ok bool) {
	last := len(g.s.layout.Units) - 1
	head := g.s.layout.Units[last].Name == model.HeadUnit
	if ph == model.Forward {
		return u + 1, u < last
	}
	switch { // backward: final, head, blocks, embedding
	case head && u == last-1:
		return last, true
	case head && u == last:
		return last - 2, last >= 2
	}
	return u - 1, u > 0
}

// acquire makes unit u's weights usable and starts to gather the next unit's.
func (g *gather) acquire(ctx context.Context, u int, ph model.Phase) error {
	src := g.source(u)
	if err := g.start(src); err != nil {
		return err
	}
	if n, ok := g.next(u, ph); ok {
		if err := g.start(g.source(n)); err != nil {
			return err
		}
	}
	st := &g.units[src]
	if st.waiting {
		select {
		case <-st.done:
			st.waiting = false
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if st.err != nil {
		return fmt.Errorf("gather of unit %s: %w", g.s.layout.Units[src].Name, st.err)
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
	ev := trace.Event{Kind: trace.KindGather, Step: g.s.step, What: what, Unit: unit.Name, Micro: g.s.item.Micro, Count: int64(unit.Len())}
	if g.s.Poison && what != names.Gather {
		sum := new(kernels.Digest)
		g.s.layout.Pieces(unit.Range, func(p *model.Param, local shard.Range) {
			at := local.Shift(p.Off - unit.Lo)
			AddDigest(sum, g.s.be, p, local, g.units[u].buf.Range(at.Lo, at.Hi))
		})
		ev.Digest = sum
	}
	g.s.Evidence.Record(ev)
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
	g.s.Queue.Submit(st.gather)
	return nil
}

// collect gathers the segments of unit u: an all-gather where all own a part, a
// broadcast where one rank owns everything.
func (g *gather) collect(ctx context.Context, u int, buf kernels.Tensor) error {
	s := g.s
	for _, i := range s.within[u] {
		seg, lo := &s.segs[i], s.layout.Units[u].Lo
		all := buf.Range(seg.Lo-lo, seg.Hi-lo)
		lctx := g.labels.On(ctx, s.beside(seg.Name, seg.Range))
		root := owner(seg.Bounds)
		if seg.Bounds[root+1]-seg.Bounds[root] < seg.Len() || s.Plan.Shard != plan.ShardTensors {
			if err := s.Overlap.AllGather(lctx, all, s.weightAt(i), seg.Bounds); err != nil {
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
	src := g.source(u)
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
