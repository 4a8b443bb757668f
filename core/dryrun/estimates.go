package dryrun

import "github.com/lockstep-ml/lockstep/core/parallel"

// Estimates are what a rank would need, in bytes, under what this program does
// not do; unlike all other figures no run confirms them.
type Estimates struct {
	// BF16 has weights, gradients, activations and what passes borrow in two bytes
	// each, and for what a rank updates weights in four besides; moments and work
	// stay as they are.
	BF16 int64 `json:"bf16"`
	// Recompute keeps of every block but its input, and makes the activations of
	// one block at a time again in the backward pass.
	Recompute int64 `json:"recompute"`
	// Both is BF16 and Recompute together.
	Both int64 `json:"bf16_recompute"`
}

// max keeps the larger ones.
func (e *Estimates) max(o Estimates) {
	e.BF16, e.Recompute, e.Both = max(e.BF16, o.BF16), max(e.Recompute, o.Recompute), max(e.Both, o.Both)
}

// estimate is for a rank that holds m.
func (b *builder) estimate(m *Memory, dp int, chunks []chunk) Estimates {
	var owned, kept, block int64 // elements
	input := b.seqs * b.cfg.Model.SeqLen * b.cfg.Model.Hidden
	for i := range chunks {
		c := &chunks[i]
		owned += int64(parallel.Hold(c.buckets, &c.layout, b.cfg.Plan.Zero, dp).Moments)
		layers := c.layout.Part.Layers.Len()
		kept += int64(c.live.acts) * int64(c.acts-layers*(c.block-input))
		block = max(block, int64(c.block))
	}
	fixed := m.Moments + m.Work + m.Evidence
	narrow := m.Total - fixed - m.Activations // weights, gradients, what passes borrow
	again := elementBytes * (kept + block)
	return Estimates{
		BF16:      fixed + narrow/2 + elementBytes*owned + m.Activations/2,
		Recompute: fixed + narrow + again,
		Both:      fixed + narrow/2 + elementBytes*owned + again/2,
	}
}
