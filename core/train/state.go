package train

import (
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/parallel"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// held is state that a rank keeps between steps: weights at rest or a moment of
// a range of a chunk's flat layout.
type held struct {
	shard.Range
	chunk      *chunk
	what       string
	at         kernels.Tensor
	replicated bool // all data-parallel ranks should hold it equal
}

// held yields the rank's state, chunk by chunk: weights, then moments.
func (r *rank) held(yield func(held) bool) {
	moments := r.opt.Moments()
	for _, c := range r.chunks {
		weights, replicated := c.Replicated()
		for _, p := range c.Weights() {
			if !yield(held{p.Range, c, trace.Weight, p.W, weights}) {
				return
			}
		}
		for _, p := range c.Shards() {
			for i, name := range moments {
				if !yield(held{p.Range, c, name, p.M[i], replicated}) {
					return
				}
			}
		}
	}
}

// counts reports whether the rank's copy is the one that counts among
// data-parallel replicas.
func (h *held) counts() bool { return !h.replicated || h.chunk.r.dp.Rank() == 0 }

// digest adds to d the digest of elements x; of those only that count, if once: each
// logical element on one rank.
func (h *held) digest(d *kernels.Digest, by parallel.Hasher, x shard.Range, once bool) {
	h.chunk.model.Layout.Pieces(x, func(p *model.Param, local shard.Range) {
		if p.Counts || !once {
			at := local.Shift(p.Off - h.Lo)
			parallel.AddDigest(d, by, p, local, h.at.Range(at.Lo, at.Hi))
		}
	})
}

// recordState records the digests of weights at rest and of moments.
func (r *rank) recordState(step int) error {
	if !r.cfg.Recording.Digests {
		return nil
	}
	loaded := step >= 0 && step == r.first-1
	for h := range r.held {
		ev := h.chunk.digester(h.replicated)
		ev.Capture = ev.Capture || loaded && r.cfg.Recording.Start && ev.Once
		if err := ev.Digests(trace.Event{Step: step, What: h.what}, h.at, h.Range); err != nil {
			return err
		}
	}
	return nil
}

// recordUnmoved records which elements still have their initial bits.
func (r *rank) recordUnmoved() error {
	for h := range r.held {
		if h.what != trace.Weight {
			continue
		}
		own := h.Intersect(shard.Range{Hi: h.chunk.model.Layout.Owned})
		err := h.chunk.digester(h.replicated).Unmoved(&r.cfg.Model, r.cfg.Seed, r.cfg.Steps-1, h.at.Range(own.Lo-h.Lo, own.Hi-h.Lo), own)
		if err != nil {
			return err
		}
	}
	return nil
}
