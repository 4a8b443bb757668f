package dryrun

import (
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/parallel"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/shard"
)

// Places in the table of traffic, by group.
const (
	gradients = iota
	weights
	lossSum
	blockForward
	blockBackward
	vocabulary
	activations
	activationGradients
	tiedGradient
	tiedWeight
)

// send adds a rank's operations of one step and returns the bytes that it
// sends, by group. Integer and byte collectives carry no bytes of tensors.
func (b *builder) send(at names.Coord, chunks []chunk) map[names.Axis]int64 {
	s := &sender{builder: b, at: at, sent: map[names.Axis]int64{}, sizes: b.microBatches(at.DP)}
	for i := range chunks {
		c := &chunks[i]
		s.data(c)
		s.tensor(c)
		s.pipeline(c)
	}
	if b.cfg.Model.Tied && b.dims.PP > 1 {
		s.tied(chunks)
	}
	return s.sent
}

// microBatches counts a data-parallel rank's micro-batches by their sequences.
func (b *builder) microBatches(dp int) map[int]int64 {
	p, out := b.cfg.Plan, map[int]int64{}
	workers := p.RankWorkers(b.cfg.Model, dp)
	per := p.MicroBatches / len(workers)
	for _, w := range workers {
		n := max(0, (b.cfg.Sequences-w+b.report.Workers-1)/b.report.Workers) // interleaved over workers
		for j := range min(per, n+1) {
			k := shard.Part{Index: j, Size: per}.Of(n).Len()
			times := int64(1)
			if j == n { // the rest of them is empty
				times = int64(per - n)
			}
			out[k] += times
		}
	}
	return out
}

// sender adds the operations of one rank.
type sender struct {
	*builder
	at    names.Coord
	sent  map[names.Axis]int64
	sizes map[int]int64 // micro-batches by sequences
}

// op adds an operation; one in a group of a single rank moves nothing.
func (s *sender) op(order int, o operation) {
	if o.part.Size == 1 && o.op != names.OpSend {
		return
	}
	if bytes := s.add(order, o); bytes > 0 {
		s.sent[o.group] += bytes
	}
}

// data adds the operations over the data-parallel ranks.
func (s *sender) data(c *chunk) {
	part := shard.Part{Index: s.at.DP, Size: s.dims.DP}
	rounds, zero := int64(s.report.Workers/s.dims.DP), s.cfg.Plan.Zero
	dp := func(order int, op, what string, count int, times int64) {
		s.op(order, operation{names.DP, op, what, count, times, part})
	}
	blocks := zero == 1 && c.buckets[0].Unit >= 0
	if zero == 0 || blocks {
		for u := range c.layout.Units {
			dp(gradients, names.OpAllReduce, "gradients", c.layout.Units[u].Len(), 1)
		}
	}
	for i := range c.buckets {
		bucket := &c.buckets[i]
		switch {
		case zero == 0:
		case blocks && !bucket.Source:
			dp(weights, names.OpBroadcast, "weights", bucket.Len(), 1)
		case blocks:
		case zero == 1:
			dp(gradients, names.OpReduceScatter, "gradients", bucket.Len(), 1)
		default:
			dp(gradients, names.OpReduceScatter, "gradients", bucket.Len(), rounds)
		}
		if (zero == 1 && !blocks || zero == 2) && !bucket.Source {
			dp(weights, names.OpAllGather, "weights", bucket.Len(), 1)
		}
		if zero == 3 && bucket.Hi <= c.layout.Weights {
			dp(weights, s.gatherOp(), "weights", bucket.Len(), int64(c.transient.gathers[bucket.Unit])*int64(s.cfg.Plan.MicroBatches))
		}
	}
	if c.layout.Part.Last {
		times := int64(1)
		if zero >= 2 {
			times = rounds
		}
		dp(lossSum, names.OpAllReduce, "loss", 1, times)
	}
}

// gatherOp brings a unit's weights to all ranks: from all, or from the owner of
// whole tensors.
func (b *builder) gatherOp() string {
	if b.cfg.Plan.Shard == plan.ShardTensors {
		return names.OpBroadcast
	}
	return names.OpAllGather
}

// tensor adds the all-reduces over the tensor-parallel ranks.
func (s *sender) tensor(c *chunk) {
	if s.dims.TP == 1 {
		return
	}
	part := c.layout.Part
	cfg, l := &s.cfg.Model, int64(part.Layers.Len())
	width := part.KVWidth(*cfg)
	for seqs, times := range s.sizes {
		n := seqs * cfg.SeqLen
		tp := func(order int, what string, count int, times int64) {
			s.op(order, operation{names.TP, names.OpAllReduce, what, count, times, part.Tensor})
		}
		tp(blockForward, "blocks forward", n*cfg.Hidden, shard.ForwardAllReducesPerBlock*l*times)
		tp(blockBackward, "blocks backward", n*cfg.Hidden, shard.BackwardAllReducesPerBlock*l*times)
		if part.VocabParallel && part.First {
			tp(vocabulary, "vocabulary", n*cfg.Hidden, times) // embedding
		}
		if part.VocabParallel && part.Last {
			tp(vocabulary, "vocabulary", n, 3*times)          // maximum, target logit, sum of exponentials
			tp(vocabulary, "vocabulary", n*cfg.Hidden, times) // gradient of the head's input
		}
		if r := s.cfg.Plan.KVReplicas(*cfg); r > 1 {
			kv := shard.Part{Index: s.at.TP % r, Size: r}
			s.op(blockBackward, operation{names.KV, names.OpAllReduce, "keys and values backward", n * width, 2 * l * times, kv})
		}
	}
}

// pipeline adds the messages between stages.
func (s *sender) pipeline(c *chunk) {
	if s.dims.PP == 1 {
		return
	}
	for seqs, times := range s.sizes {
		n := seqs * s.cfg.Model.SeqLen * s.cfg.Model.Hidden
		if !c.layout.Part.Last {
			s.message(activations, "activations", n, times)
		}
		if !c.layout.Part.First {
			s.message(activationGradients, "gradients of activations", n, times)
		}
	}
}

func (s *sender) message(order int, what string, count int, times int64) {
	s.op(order, operation{names.PP, names.OpSend, what, count, times, shard.Part{Size: 1}})
}

// tied adds the exchange of a tied embedding between first and last stage.
func (s *sender) tied(chunks []chunk) {
	if last := &chunks[len(chunks)-1]; last.layout.Part.Last {
		for _, n := range s.tiedGradients(s.at.DP, last) {
			s.message(tiedGradient, names.TiedGradient, n, 1)
		}
	}
	if first := &chunks[0]; first.layout.Part.First {
		for _, n := range s.tiedWeights(s.at.DP, first) {
			s.message(tiedWeight, names.TiedWeight, n, 1)
		}
	}
}

// tiedGradients lists the elements of each message that carries the head's
// source, as the chunk with the embedding or with the head cuts it.
func (b *builder) tiedGradients(dp int, c *chunk) []int {
	u := b.tiedUnit(c)
	whole := c.layout.Units[u].Range
	if b.cfg.Plan.Zero == 0 || b.cfg.Plan.Zero == 1 && c.buckets[0].Unit >= 0 {
		return []int{whole.Len()}
	}
	var out []int
	for _, bucket := range tiedBuckets(c, u) {
		out = append(out, whole.Intersect(bucket.Own(dp)).Len())
	}
	return out
}

// tiedWeights lists the elements of each message that carries the updated
// embedding to the head.
func (b *builder) tiedWeights(dp int, c *chunk) []int {
	u := b.tiedUnit(c)
	if b.cfg.Plan.Zero < 3 {
		return []int{c.layout.Units[u].Len()}
	}
	var out []int
	for _, bucket := range tiedBuckets(c, u) {
		out = append(out, bucket.Own(dp).Len())
	}
	return out
}

func (b *builder) tiedUnit(c *chunk) int {
	if c.layout.Part.First {
		return 0
	}
	return len(c.layout.Units) - 1
}

// tiedBuckets are the buckets that hold a gradient source of the tied
// embedding: those of unit u, or the whole vector's.
func tiedBuckets(c *chunk, u int) []*parallel.Bucket {
	var out []*parallel.Bucket
	head := c.layout.Units[u].Name == model.HeadUnit
	for i := range c.buckets {
		if bucket := &c.buckets[i]; bucket.Source == head && (bucket.Unit < 0 || bucket.Unit == u) {
			out = append(out, bucket)
		}
	}
	return out
}
