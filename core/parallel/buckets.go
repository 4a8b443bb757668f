package parallel

import (
	"fmt"
	"slices"

	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/shard"
)

// Bucket is a range of the flat layout that is sharded as a whole: rank i of
// the data-parallel group owns elements [Bounds[i], Bounds[i+1]) of it.
type Bucket struct {
	Name string
	shard.Range
	Bounds []int // nil: every rank owns all
	Unit   int   // the unit that it lies in; -1 for all of them
	// Source marks the gradient source of a tied head: cut like the embedding.
	Source bool
}

// Own is the part of the flat layout that rank i owns.
func (s *Bucket) Own(i int) shard.Range {
	if s.Bounds == nil {
		return s.Range
	}
	return shard.Range{Lo: s.Lo + s.Bounds[i], Hi: s.Lo + s.Bounds[i+1]}
}

// whole gives all of n elements to one owner.
func whole(n, owner, size int) []int {
	b := make([]int, size+1)
	for i := owner + 1; i <= size; i++ {
		b[i] = n
	}
	return b
}

// Buckets cuts a layout for a plan: stage 0 has one bucket that every rank
// owns in full (Bounds nil); stage 1 one bucket, the whole vector, or one per
// block with an owner; stages 2 and 3 one per unit, or one per tensor.
func Buckets(p plan.Plan, c model.Config, l *model.Layout) ([]Bucket, error) {
	dp := p.Dims().DP
	var out []Bucket
	switch {
	case p.Zero == 0:
		return []Bucket{{Name: names.WholeVector, Range: shard.Range{Hi: l.Owned}, Unit: -1}}, nil
	case p.Zero == 1 && (p.Shard == plan.ShardFlat || p.Shard == ""):
		out = append(out, Bucket{Name: names.WholeVector, Range: shard.Range{Hi: l.Owned}, Unit: -1, Bounds: shard.Bounds(l.Owned, dp)})
	case p.Zero == 1:
		buckets, err := blockBuckets(p.Shard, l, dp)
		if err != nil {
			return nil, err
		}
		out = buckets
	case p.Shard == plan.ShardTensors:
		out = tensorBuckets(l, dp)
	default:
		for u := range l.Units {
			if r := l.Units[u].Range; r.Hi <= l.Owned {
				out = append(out, Bucket{Name: l.Units[u].Name, Range: r, Unit: u, Bounds: shard.Bounds(r.Len(), dp)})
			}
		}
	}
	if l.Grads > l.Owned {
		head := l.Units[len(l.Units)-1]
		bounds, err := headBounds(p, c, l, head.Len())
		if err != nil {
			return nil, err
		}
		out = append(out, Bucket{Name: head.Name, Range: head.Range, Unit: len(l.Units) - 1, Bounds: bounds, Source: true})
	}
	return out, nil
}

// headBounds cuts the head source as the embedding is cut, on the stage that
// has it.
func headBounds(p plan.Plan, c model.Config, l *model.Layout, n int) ([]int, error) {
	first := l
	if l.Units[0].Name != model.EmbedUnit {
		part := p.Parts(c, p.Dims().Coord(0))[0]
		part.Tensor = l.Part.Tensor
		whole := model.NewLayout(c, part)
		whole.Grads = whole.Owned // only the owned range is of interest
		first = &whole
	} else {
		owned := *l
		owned.Grads = owned.Owned
		first = &owned
	}
	buckets, err := Buckets(p, c, first)
	if err != nil {
		return nil, err
	}
	if buckets[0].Lo != 0 || buckets[0].Hi < n {
		return nil, fmt.Errorf("embedding of %d elements is cut into several buckets", n)
	}
	bounds := make([]int, len(buckets[0].Bounds))
	for i, b := range buckets[0].Bounds {
		bounds[i] = min(b, n)
	}
	return bounds, nil
}

// Holding counts the elements that a data-parallel rank keeps between passes.
type Holding struct {
	Weights, Moments int
	Grads            int // in each buffer of the binary counter over its workers
}

// Hold counts for a rank of the group: stage 1 shards moments, stage 2 gradients
// too, stage 3 everything.
func Hold(buckets []Bucket, l *model.Layout, zero, rank int) Holding {
	var h Holding
	for i := range buckets {
		n := buckets[i].Own(rank).Len()
		h.Grads += n
		if !buckets[i].Source {
			h.Moments += n
		}
		if buckets[i].Hi <= l.Weights {
			h.Weights += n
		}
	}
	if zero < 2 {
		h.Grads = l.Grads
	}
	if zero < 3 {
		h.Weights = l.Weights
	}
	return h
}

// WholeGradient reports whether stages 2 and 3 hold the full gradient of all
// units at once: where a logical worker has several micro-batches. Else a unit's
// lives only during the unit's backward pass.
func WholeGradient(p plan.Plan, c model.Config) bool {
	return p.Zero >= 2 && p.MicroBatches > len(p.RankWorkers(c, 0))
}

// blockBuckets gives each block of a layout, its embedding, final norm and head
// one owner, by the block map of the given kind over the blocks of this layout
// (a pipeline stage deals out its own).
func blockBuckets(kind string, l *model.Layout, dp int) ([]Bucket, error) {
	m, err := BlockMap(kind, BlockSizes(l), dp)
	if err != nil {
		return nil, err
	}
	var out []Bucket
	give := func(name string, r shard.Range, unit, owner int) {
		out = append(out, Bucket{Name: name, Range: r, Unit: unit, Bounds: whole(r.Len(), owner, dp)})
	}
	block := 0
	for u := range l.Units {
		unit := &l.Units[u]
		switch unit.Name {
		case model.HeadUnit: // tied: no state of its own
		case model.EmbedUnit:
			give(unit.Name, unit.Range, u, m.Embed)
		case model.FinalUnit:
			for _, i := range unit.Params {
				p, owner := &l.Params[i], m.FinalNorm
				if p.Name == model.HeadName {
					owner = m.Head
				}
				give(p.Name, p.Range(), u, owner)
			}
		default:
			give(unit.Name, unit.Range, u, m.Blocks[block])
			block++
		}
	}
	return out, nil
}

// BlockMap is the block map of a plan's kind over dp ranks.
func BlockMap(kind string, sizes shard.Sizes, dp int) (shard.BlockMap, error) {
	switch kind {
	case plan.ShardRoundRobin:
		return shard.RoundRobin(len(sizes.Blocks), dp)
	case plan.ShardContiguous:
		return shard.Contiguous(len(sizes.Blocks), dp)
	}
	return shard.Balanced(sizes, dp)
}

// BlockSizes are the elements of a layout that block maps share out. What the
// layout does not hold, and a tied head, has size 0.
func BlockSizes(l *model.Layout) shard.Sizes {
	var s shard.Sizes
	for u := range l.Units {
		unit := &l.Units[u]
		switch unit.Name {
		case model.HeadUnit:
		case model.EmbedUnit:
			s.Embed = uint64(unit.Len())
		case model.FinalUnit:
			norm := l.Params[unit.Params[0]].Len()
			s.FinalNorm, s.Head = uint64(norm), uint64(unit.Len()-norm)
		default:
			s.Blocks = append(s.Blocks, uint64(unit.Len()))
		}
	}
	return s
}

// tensorBuckets makes every parameter with a state one bucket and deals them
// out whole: the i-th name in sorted order belongs to rank i mod dp.
func tensorBuckets(l *model.Layout, dp int) []Bucket {
	var names []string
	for i := range l.Params {
		if l.Params[i].Off < l.Owned {
			names = append(names, l.Params[i].Name)
		}
	}
	slices.Sort(names)
	var out []Bucket
	for i := range l.Params {
		p := &l.Params[i]
		if place, ok := slices.BinarySearch(names, p.Name); ok && p.Off < l.Owned {
			out = append(out, Bucket{Name: p.Name, Range: p.Range(), Unit: p.Unit, Bounds: whole(p.Len(), place%dp, dp)})
		}
	}
	return out
}
