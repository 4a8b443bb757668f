package model_test

import (
	"context"
	"math"

	"pgregory.net/rapid"

	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// part is one rank's part of a model with its buffers and one micro-batch.
type part[T ref.Float] struct {
	*model.Model
	be      *ref.Backend[T]
	acts    *model.Acts
	w, g    []T // flat weights and gradients
	loss    kernels.Tensor
	weights kernels.Tensor
	grads   kernels.Tensor
}

// newPart makes the part with its initial weights.
func newPart[T ref.Float](c model.Config, p model.Part, seed uint64, seqs int) (*part[T], error) {
	be := ref.New[T]()
	m, err := model.New(be, c, p, seqs)
	if err != nil {
		return nil, err
	}
	r := &part[T]{Model: m, be: be}
	for _, x := range []struct {
		to *kernels.Tensor
		n  int
	}{{&r.weights, m.Layout.Weights}, {&r.grads, m.Layout.Grads}, {&r.loss, 1}} {
		b, err := be.Alloc(x.n)
		if err != nil {
			return nil, err
		}
		*x.to = kernels.Flat(b)
	}
	r.w, r.g = ref.Data[T](r.weights), ref.Data[T](r.grads)
	r.initialize(c, seed)
	for u := range m.Layout.Units {
		x := m.Layout.Units[u].Range
		if x.Hi <= m.Layout.Weights {
			m.BindWeights(u, r.weights.Range(x.Lo, x.Hi))
		}
		m.BindGrads(u, r.grads.Range(x.Lo, x.Hi))
	}
	m.BindLoss(r.loss)
	r.acts, err = m.NewActs(be, seqs)
	return r, err
}

// initialize writes initial weights; those of norms, all 1 at the start of a
// training, are moved too, so that nothing is special about them.
func (r *part[T]) initialize(c model.Config, seed uint64) {
	for i := range r.Layout.Params {
		p := &r.Layout.Params[i]
		if p.Off >= r.Layout.Weights {
			continue
		}
		x := make([]float32, p.Len())
		c.Initial(p, shard.Range{Hi: p.Len()}, seed, x)
		for j, v := range x {
			if p.Rows == 1 && v == 1 {
				v = 0.75 + 0.0625*float32(j%9)
			}
			r.w[p.Off+j] = T(v)
		}
	}
}

// run clears loss and gradient, and runs a micro-batch forward and backward.
func (r *part[T]) run(ctx context.Context, b model.Batch) error {
	r.be.Fill(r.grads, 0)
	r.be.Fill(r.loss, 0)
	if err := r.Forward(ctx, r.acts, b); err != nil {
		return err
	}
	_, err := r.Backward(ctx, r.acts, kernels.Tensor{})
	return err
}

// drawBatch draws sequences with some targets ignored, at least one of them not.
func drawBatch(t *rapid.T, c model.Config) model.Batch {
	b := model.Batch{Seqs: rapid.IntRange(1, 3).Draw(t, "sequences")}
	n := b.Seqs * c.SeqLen
	token := rapid.Int32Range(0, int32(c.Vocab-1))
	b.Tokens = rapid.SliceOfN(token, n, n).Draw(t, "tokens")
	b.Targets = rapid.SliceOfN(rapid.OneOf(token, rapid.Just(int32(-1))), n, n).Draw(t, "targets")
	valid := 0
	for _, y := range b.Targets {
		if y >= 0 {
			valid++
		}
	}
	if valid == 0 {
		b.Targets[n-1], valid = int32(c.Vocab-1), 1
	}
	b.InvN = 1 / float64(valid)
	return b
}

// mean is the mean loss of the batch.
func (r *part[T]) mean(b model.Batch) float64 { return float64(ref.Data[T](r.loss)[0]) * b.InvN }

// finite reports whether all gradients are.
func (r *part[T]) finite() bool {
	for _, x := range r.g {
		if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
			return false
		}
	}
	return true
}
