package dryrun

import (
	"errors"

	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/parallel"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/shard"
)

// Saved is what ZeRO saves a rank of the optimizer state.
type Saved struct {
	Bytes uint64 `json:"bytes"` // that it holds
	Full  uint64 `json:"full"`  // that it would hold without ZeRO
	// Share is the part of Full that it need not hold, Ideal what equal shards
	// would save.
	Share float64 `json:"share"`
	Ideal float64 `json:"ideal"`
}

// saved joins the shards of all buckets that have an optimizer state.
func (b *builder) saved(dp int, chunks []chunk) (*Saved, error) {
	if b.cfg.Plan.Zero == 0 {
		return nil, nil
	}
	all, err := shard.NewOptimizerShard(dp, b.dims.DP, 0)
	if err != nil {
		return nil, err
	}
	for i := range chunks {
		for j := range chunks[i].buckets {
			if s := &chunks[i].buckets[j]; !s.Source {
				all = all.Join(shard.OptimizerShard{Rank: dp, World: b.dims.DP, Total: s.Len(), Range: s.Own(dp)})
			}
		}
	}
	s := Saved{Share: all.Savings(), Ideal: all.IdealSavings()}
	if s.Bytes, err = all.Bytes(b.moments, false); err == nil {
		s.Full, err = all.FullBytes(b.moments, false)
	}
	return &s, err
}

// Map is how a block map shares out the optimizer state of a chunk.
type Map struct {
	// Fractions is the share of the state that each data-parallel rank holds.
	Fractions   []float64 `json:"fractions"`
	MaxOverMean float64   `json:"max_over_mean"`
	Idle        []int     `json:"idle,omitempty"` // data-parallel ranks without any
}

// maps gives the block maps of a stage's chunks; none under other plans.
func (b *builder) maps(chunks []chunk) ([]Map, error) {
	switch b.cfg.Plan.Shard {
	case plan.ShardFlat, plan.ShardTensors:
		return nil, nil
	}
	out := make([]Map, len(chunks))
	for i := range chunks {
		sizes := parallel.BlockSizes(&chunks[i].layout)
		m, err := parallel.BlockMap(b.cfg.Plan.Shard, sizes, b.dims.DP)
		if err != nil {
			return nil, err
		}
		balance, err := m.Balance(sizes)
		if err != nil {
			return nil, err
		}
		out[i] = Map{MaxOverMean: balance.MaxOverMean, Idle: balance.Idle}
		for rank := range b.dims.DP {
			f, err := m.FractionHeld(sizes, rank)
			if err != nil {
				return nil, err
			}
			out[i].Fractions = append(out[i].Fractions, f)
		}
	}
	return out, nil
}

// Tensor is how tensor parallelism cuts the model.
type Tensor struct {
	// Fractions is the share of the weights of all stages that each
	// tensor-parallel rank holds, biases apart.
	Fractions []float64 `json:"fractions"`
	// Slices are the first rank's matrices of a block.
	Slices []Slice `json:"slices"`
}

// Slice is a rank's part of a matrix, stored [out, in].
type Slice struct {
	Name  string `json:"name"`
	Layer string `json:"layer"` // column-parallel (outputs are split) or row-parallel (inputs are)
	Shape [2]int `json:"shape"`
	Full  [2]int `json:"full"`
}

// tensorParallel describes the cut; nil for a single tensor-parallel rank.
func (b *builder) tensorParallel() (*Tensor, error) {
	if b.dims.TP == 1 {
		return nil, nil
	}
	c, part := b.cfg.Model, b.cfg.Plan.Parts(b.cfg.Model, b.dims.Coord(0))[0]
	shape := shard.WeightShape{Hidden: c.Hidden, Blocks: c.Layers, Tied: c.Tied}
	if part.VocabParallel {
		shape.VocabGroups = c.Groups.Tensor
	}
	var out Tensor
	for part.Tensor.Index = range b.dims.TP {
		f, err := part.TensorParallel(c).WeightFraction(shape)
		if err != nil {
			return nil, err
		}
		out.Fractions = append(out.Fractions, f)
	}
	part.Tensor.Index = 0
	var err error
	out.Slices, err = blockSlices(c, part)
	return &out, err
}

// blockSlices lists the matrices of a block in the order of the layout. KV heads
// are replicated where there are fewer than ranks.
func blockSlices(c model.Config, p model.Part) ([]Slice, error) {
	q, err1 := shard.ColumnParallel(c.Hidden, c.QDim(), p.Tensor)
	o, err2 := shard.RowParallel(c.QDim(), c.Hidden, p.Tensor)
	gate, err3 := shard.ColumnParallel(c.Hidden, c.Intermediate, p.Tensor)
	down, err4 := shard.RowParallel(c.Intermediate, c.Hidden, p.Tensor)
	heads := p.TensorParallel(c).KVHeadRange()
	kv := shard.MatrixShard{Rows: c.KVDim(), Cols: c.Hidden, Axis: shard.Rows, Range: shard.Range{Lo: heads.Lo * c.HeadDim, Hi: heads.Hi * c.HeadDim}}
	if err := errors.Join(err1, err2, err3, err4, kv.Check()); err != nil {
		return nil, err
	}
	var out []Slice
	for _, x := range []struct {
		name string
		m    shard.MatrixShard
	}{{"q_proj", q}, {"k_proj", kv}, {"v_proj", kv}, {"o_proj", o}, {"gate_proj", gate}, {"up_proj", gate}, {"down_proj", down}} {
		s := Slice{Name: x.name, Layer: "column-parallel", Full: [2]int{x.m.Rows, x.m.Cols}}
		if x.m.Axis == shard.Columns {
			s.Layer = "row-parallel"
		}
		s.Shape[0], s.Shape[1] = x.m.Shape()
		out = append(out, s)
	}
	return out, nil
}

// AllReduces is what the all-reduces of blocks over tensor-parallel ranks move
// in a step.
type AllReduces struct {
	Times   uint64 `json:"times"`
	Logical uint64 `json:"logical"` // bytes of the tensors that are reduced
	Wire    uint64 `json:"wire"`    // bytes that all ranks together send
	Busiest uint64 `json:"busiest"` // bytes that the busiest rank sends
}

// allReduces adds up the cost model over the micro-batches of the first
// data-parallel rank, by their sizes; nil for a single tensor-parallel rank.
func (b *builder) allReduces(chunks []chunk) (*AllReduces, error) {
	if b.dims.TP == 1 {
		return nil, nil
	}
	blocks := 0
	for i := range chunks {
		blocks += chunks[i].layout.Part.Layers.Len()
	}
	var out AllReduces
	for seqs, times := range b.microBatches(0) {
		cost, err := shard.NewTPCost(seqs, b.cfg.Model.SeqLen, b.cfg.Model.Hidden, blocks, b.dims.TP, int(times))
		if err != nil {
			return nil, err
		}
		out.Times += cost.AllReduces()
		out.Logical += cost.LogicalBytes()
		out.Wire += cost.WireBytes()
		out.Busiest += cost.WireBytesPerRank()
	}
	return &out, nil
}
