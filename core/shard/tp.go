package shard

import (
	"errors"
	"fmt"
	"math"
)

// TensorParallel is one rank's view of a model that is split over heads,
// intermediate size and, if wanted, vocabulary (Megatron-LM, Shoeybi et al.,
// arXiv 1909.08053).
type TensorParallel struct {
	Rank, Size   int
	Heads        int // a multiple of Size
	KVHeads      int // divides Heads; a multiple of Size, or divides it
	HeadDim      int // elements; Heads*HeadDim need not be the hidden size
	Intermediate int // a multiple of Size
	Vocab        int // split by the shard rule, if at all
}

// Validate refuses what cannot be split, naming value and rule.
func (t TensorParallel) Validate() error {
	if err := checkRank(t.Rank, t.Size); err != nil {
		return fmt.Errorf("tensor parallel: %w", err)
	}
	for _, x := range []struct {
		name string
		n    int
	}{{"heads", t.Heads}, {"kv_heads", t.KVHeads}, {"head_dim", t.HeadDim}, {"intermediate", t.Intermediate}, {"vocab", t.Vocab}} {
		if x.n < 1 || x.n > math.MaxInt32 {
			return fmt.Errorf("tensor parallel: %s=%d: must be from 1 to %d", x.name, x.n, math.MaxInt32)
		}
	}
	switch {
	case t.Heads%t.Size != 0:
		return fmt.Errorf("tensor parallel: heads=%d: must be a multiple of tp=%d", t.Heads, t.Size)
	case t.Heads%t.KVHeads != 0:
		return fmt.Errorf("tensor parallel: heads=%d: must be a multiple of kv_heads=%d", t.Heads, t.KVHeads)
	case t.KVHeads%t.Size != 0 && t.Size%t.KVHeads != 0:
		return fmt.Errorf("tensor parallel: kv_heads=%d: must be a multiple of tp=%d or divide it", t.KVHeads, t.Size)
	case t.Intermediate%t.Size != 0:
		return fmt.Errorf("tensor parallel: intermediate=%d: must be a multiple of tp=%d", t.Intermediate, t.Size)
	}
	return nil
}

// The methods below are for configurations that Validate accepts.

func (t TensorParallel) part() Part { return Part{t.Rank, t.Size} }

// HeadRange is the query heads of the rank.
func (t TensorParallel) HeadRange() Range { return t.part().Of(t.Heads) }

// KVReplicas is the number of ranks that hold the same KV head: 1 if there is
// one for every rank. The gradient of replicas is the same on each, and counts
// once.
func (t TensorParallel) KVReplicas() int { return max(1, t.Size/t.KVHeads) }

// KVHeadRange is the KV heads of the rank; with replicas a single one, which
// its query heads attend to.
func (t TensorParallel) KVHeadRange() Range {
	r := t.KVReplicas()
	return Part{t.Rank / r, t.Size / r}.Of(t.KVHeads)
}

// IntermediateRange is the rank's part of the intermediate size.
func (t TensorParallel) IntermediateRange() Range { return t.part().Of(t.Intermediate) }

// VocabRange is the rank's part of the vocabulary if it is split: the shard rule
// over groups, of which the rank holds groups/Size consecutive ones. groups is
// the model's number of tensor groups, or Size for the shard rule over ranks.
func (t TensorParallel) VocabRange(groups int) (Range, error) {
	if groups < 1 || groups%t.Size != 0 {
		return Range{}, fmt.Errorf("tensor parallel: %d groups of the vocabulary: must be a multiple of tp=%d", groups, t.Size)
	}
	per := groups / t.Size
	lo, hi := Part{t.Rank * per, groups}.Of(t.Vocab), Part{(t.Rank+1)*per - 1, groups}.Of(t.Vocab)
	return Range{lo.Lo, hi.Hi}, nil
}

// LocalHeads is the number of query heads on the rank.
func (t TensorParallel) LocalHeads() int { return t.HeadRange().Len() }

// LocalKVHeads is the number of KV heads on the rank, at least 1.
func (t TensorParallel) LocalKVHeads() int { return t.KVHeadRange().Len() }

// LocalQSize is the width of the rank's query projection, in elements.
func (t TensorParallel) LocalQSize() int { return t.LocalHeads() * t.HeadDim }

// LocalKVSize is the width of the rank's key, and value, projection.
func (t TensorParallel) LocalKVSize() int { return t.LocalKVHeads() * t.HeadDim }

// LocalIntermediate is the width of the rank's gate and up projections.
func (t TensorParallel) LocalIntermediate() int { return t.IntermediateRange().Len() }

// WeightShape is what WeightFraction needs beside a TensorParallel.
type WeightShape struct {
	Hidden, Blocks int
	Tied           bool // the head is the embedding
	VocabGroups    int  // embedding and head are split as VocabRange says; 0 is not at all
}

// WeightFraction is the share of the model's weights that the rank holds: heads
// and intermediate size are split, norms replicated, and so are embedding and
// head without VocabGroups, and KV heads beyond one per rank. Biases are not
// counted.
func (t TensorParallel) WeightFraction(w WeightShape) (float64, error) {
	if err := t.Validate(); err != nil {
		return 0, err
	}
	if w.Hidden < 1 || w.Blocks < 0 {
		return 0, fmt.Errorf("tensor parallel: hidden=%d, blocks=%d: must be at least 1 and 0", w.Hidden, w.Blocks)
	}
	vocab := t.Vocab
	if w.VocabGroups != 0 {
		r, err := t.VocabRange(w.VocabGroups)
		if err != nil {
			return 0, err
		}
		vocab = r.Len()
	}
	var c checked
	local := w.elements(&c, t.LocalQSize(), t.LocalKVSize(), t.LocalIntermediate(), vocab)
	full := w.elements(&c, t.Heads*t.HeadDim, t.KVHeads*t.HeadDim, t.Intermediate, t.Vocab)
	return float64(local) / float64(full), c.err("tensor parallel: number of weights")
}

// elements is V*H*(1 or 2) + L*(2H + 2*q*H + 2*kv*H + 3*I*H) + H.
func (w WeightShape) elements(c *checked, q, kv, intermediate, vocab int) uint64 {
	h := uint64(w.Hidden)
	tables := uint64(2)
	if w.Tied {
		tables = 1
	}
	rows := c.add(c.mul(2, uint64(q)), c.add(c.mul(2, uint64(kv)), c.mul(3, uint64(intermediate))))
	blocks := c.mul(uint64(w.Blocks), h, c.add(rows, 2))
	return c.add(c.mul(tables, uint64(vocab), h), c.add(blocks, h))
}

// TPCost is the communication of tensor parallelism in one step of a rank.
// Build it with NewTPCost.
type TPCost struct {
	Size         int // ranks of the group
	Blocks       int // on this rank
	MicroBatches int // per step
	// BytesPerAllReduce is micro-batch * sequence length * hidden size * 4.
	BytesPerAllReduce uint64
}

// All-reduces of a block, of the size of its input. Forward: the outputs of
// attention and of the MLP. Backward: the input gradients of q, k, v and of
// gate, up.
const (
	ForwardAllReducesPerBlock  = 2
	BackwardAllReducesPerBlock = 2
)

// NewTPCost takes sequences per micro-batch, tokens per sequence, the hidden
// size in elements, blocks on the rank, ranks, and micro-batches per step.
func NewTPCost(microBatch, seqLen, hidden, blocks, size, microBatches int) (TPCost, error) {
	for _, x := range []struct {
		name   string
		n, low int
	}{{"sequences per micro-batch", microBatch, 0}, {"tokens per sequence", seqLen, 0}, {"hidden size", hidden, 0},
		{"blocks", blocks, 0}, {"ranks", size, 1}, {"micro-batches", microBatches, 0}} {
		if x.n < x.low {
			return TPCost{}, fmt.Errorf("tensor parallel cost: %d %s: must be at least %d", x.n, x.name, x.low)
		}
	}
	var c checked
	cost := TPCost{Size: size, Blocks: blocks, MicroBatches: microBatches,
		BytesPerAllReduce: c.mul(uint64(microBatch), uint64(seqLen), uint64(hidden), float32Bytes)}
	// The largest product of any method; those below need no check.
	c.mul(2, uint64(size), cost.BytesPerAllReduce, ForwardAllReducesPerBlock+BackwardAllReducesPerBlock, uint64(blocks), uint64(microBatches))
	return cost, c.err("tensor parallel cost: bytes of a step")
}

// AllReduces is their number per step: 4 per block and micro-batch, 0 for a
// single rank.
func (c TPCost) AllReduces() uint64 {
	if c.Size <= 1 {
		return 0
	}
	return (ForwardAllReducesPerBlock + BackwardAllReducesPerBlock) * uint64(c.Blocks) * uint64(c.MicroBatches)
}

// LogicalBytes is the bytes of all tensors that are all-reduced in a step.
func (c TPCost) LogicalBytes() uint64 { return c.AllReduces() * c.BytesPerAllReduce }

// WireBytes is what all ranks together send in a step: 2(n-1) times the logical
// bytes for n ranks, as a ring does.
func (c TPCost) WireBytes() uint64 { return 2 * uint64(max(c.Size, 1)-1) * c.LogicalBytes() }

// WireBytesPerRank is the share of the busiest rank: 2(n-1)/n of the logical
// bytes, rounded up in each all-reduce.
func (c TPCost) WireBytesPerRank() uint64 {
	if c.Size <= 1 {
		return 0
	}
	n := uint64(c.Size)
	total := 2 * (n - 1) * c.BytesPerAllReduce
	share := total / n
	if total%n != 0 {
		share++
	}
	return share * c.AllReduces()
}

// ErrRate is the error of a bandwidth or latency that is not one.
var ErrRate = errors.New("not a usable rate")

// TimeSeconds is the time of a step's all-reduces if none overlaps computation,
// for a planner that weighs plans by a machine's links:
// WireBytesPerRank over the bandwidth of a rank's link, in 10^9 bits per second,
// and the latency of each all-reduce, in seconds. It refuses a bandwidth that is
// not positive, a negative latency, NaN and infinities.
func (c TPCost) TimeSeconds(gbitPerSecond, latencySeconds float64) (float64, error) {
	if !(gbitPerSecond > 0) || math.IsInf(gbitPerSecond, 0) {
		return 0, fmt.Errorf("bandwidth of %v Gbit/s: %w", gbitPerSecond, ErrRate)
	}
	if !(latencySeconds >= 0) || math.IsInf(latencySeconds, 0) {
		return 0, fmt.Errorf("latency of %v s: %w", latencySeconds, ErrRate)
	}
	transfer := float64(c.WireBytesPerRank()) * 8 / float64(gbitPerSecond*1e9)
	return transfer + float64(float64(c.AllReduces())*latencySeconds), nil
}
