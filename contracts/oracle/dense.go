// Package oracle is the oracle of bounded clauses: the exact gradient of a step
// at recorded weights, with the error that any float32 evaluation may have.
package oracle

import (
	"context"
	"fmt"

	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Dense evaluates loss and gradient of a model that one worker holds whole, on
// the memory of one backend.
type Dense struct {
	be      kernels.Backend
	model   *model.Model
	acts    *model.Acts
	buffers []kernels.Buffer
	weights kernels.Tensor // flat, Layout.Weights elements
	grads   kernels.Tensor // flat, Layout.Grads elements
	loss    kernels.Tensor // one element
}

// NewDense allocates what a valid configuration needs for micro-batches of at
// most seqs sequences. Weights are zero.
func NewDense(be kernels.Backend, c model.Config, seqs int) (*Dense, error) {
	m, err := model.New(be, c, model.Whole(c), seqs)
	if err != nil {
		return nil, err
	}
	d := &Dense{be: be, model: m}
	if d.acts, err = m.NewActs(be, seqs); err != nil {
		return nil, err
	}
	for _, part := range []struct {
		t *kernels.Tensor
		n int
	}{{&d.weights, m.Layout.Weights}, {&d.grads, m.Layout.Grads}, {&d.loss, 1}} {
		buf, err := be.Alloc(part.n)
		if err != nil {
			return nil, fmt.Errorf("dense model: %w", err)
		}
		d.buffers = append(d.buffers, buf)
		*part.t = kernels.Flat(buf)
	}
	for i, u := range m.Layout.Units {
		if u.Hi <= m.Layout.Weights { // a tied head has no weights of its own
			m.BindWeights(i, d.weights.Range(u.Lo, u.Hi))
		}
		m.BindGrads(i, d.grads.Range(u.Lo, u.Hi))
	}
	m.BindLoss(d.loss)
	return d, nil
}

// Free gives the memory of weights, gradients and activations back.
func (d *Dense) Free() {
	d.model.FreeActs(d.acts)
	for _, b := range d.buffers {
		d.be.Free(b)
	}
}

// Params calls f for every logical parameter, in layout order.
func (d *Dense) Params(f func(p *model.Param)) {
	l := &d.model.Layout
	l.Pieces(shard.Range{Hi: l.Owned}, func(p *model.Param, _ shard.Range) { f(p) })
}

// SetWeights writes the weights of all parameters, by name, row by row. It
// refuses a set that lacks one or has one of another length.
func (d *Dense) SetWeights(weights map[string][]float32) error {
	var err error
	d.Params(func(p *model.Param) {
		w := weights[p.Name]
		switch {
		case len(w) == p.Len():
			d.be.Write(d.Weight(p), w)
		case err == nil:
			err = fmt.Errorf("weights of %s: %d elements, want %d", p.Name, len(w), p.Len())
		}
	})
	return err
}

// Weight and Gradient are the elements of a parameter, as one row.
func (d *Dense) Weight(p *model.Param) kernels.Tensor {
	return d.weights.Range(p.Range().Lo, p.Range().Hi)
}

// Gradient is that of the last Evaluate.
func (d *Dense) Gradient(p *model.Param) kernels.Tensor {
	return d.grads.Range(p.Range().Lo, p.Range().Hi)
}

// Loss is the loss of the last Evaluate, one element: the sum over the valid
// tokens times the batch's InvN.
func (d *Dense) Loss() kernels.Tensor { return d.loss }

// Evaluate runs the batch forward and backward as one micro-batch. A tied
// head's gradient is added to the embedding's.
func (d *Dense) Evaluate(ctx context.Context, b model.Batch) error {
	d.be.Fill(d.grads, 0)
	d.be.Fill(d.loss, 0)
	if err := d.model.Forward(ctx, d.acts, b); err != nil {
		return err
	}
	if _, err := d.model.Backward(ctx, d.acts, kernels.Tensor{}); err != nil {
		return err
	}
	d.be.Scale(d.loss, d.loss, b.InvN)
	l := &d.model.Layout
	if head := l.Units[len(l.Units)-1]; head.Name == model.HeadUnit {
		embed := d.grads.Range(l.Units[0].Lo, l.Units[0].Hi)
		d.be.Add(embed, embed, d.grads.Range(head.Lo, head.Hi))
	}
	return nil
}
