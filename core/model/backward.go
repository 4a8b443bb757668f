package model

import (
	"context"

	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Backward runs the part backward over the micro-batch in a, adding to the
// bound gradients by chains that continue from what they hold. On a stage
// without the head, dout is the gradient of a.Out. On a stage without the
// embedding the gradient of its input is returned, valid until the next pass.
// Micro-batches must come in ascending order.
func (m *Model) Backward(ctx context.Context, a *Acts, dout kernels.Tensor) (kernels.Tensor, error) {
	n := a.batch.Seqs
	m.mem.layout(m, n, &arena{buf: m.mem.buf})
	dx, other := m.mem.dx, m.mem.dx2
	if m.part.Last {
		if err := m.lossBackward(ctx, a, dx); err != nil {
			return dx, err
		}
	} else {
		m.be.Copy(dx, dout)
	}
	for i := len(a.blocks) - 1; i >= 0; i-- {
		u := m.block(m.part.Layers.Lo + i)
		if err := m.before(ctx, u, Backward); err != nil {
			return dx, err
		}
		if err := m.blockBackward(ctx, u, &a.blocks[i], dx, other, n); err != nil {
			return dx, err
		}
		dx, other = other, dx
		if err := m.after(ctx, u, Backward); err != nil {
			return dx, err
		}
	}
	if !m.part.First {
		return dx, nil
	}
	if err := m.before(ctx, 0, Backward); err != nil {
		return dx, err
	}
	m.be.EmbeddingGrad(m.grad(0, 0), dx, a.batch.Tokens, m.s.vocab.Lo)
	return dx, m.after(ctx, 0, Backward)
}

// lossBackward adds the micro-batch's loss and the gradients of head and final
// norm, and leaves the gradient of the final norm's input in dx.
func (m *Model) lossBackward(ctx context.Context, a *Acts, dx kernels.Tensor) error {
	u := m.final()
	if err := m.before(ctx, u, Backward); err != nil {
		return err
	}
	hu, hp := m.head()
	gu, gp := m.headGrad()
	if gu != u {
		if err := m.before(ctx, gu, Backward); err != nil {
			return err
		}
	}
	be := m.be
	be.ColumnSum(m.loss, a.nll)
	be.MatMulTN(m.grad(gu, gp), a.logits, a.norm)
	dn := m.mem.dn
	be.MatMulNN(dn, append(m.mem.terms[:0], kernels.Term{A: a.logits, B: m.weight(hu, hp), Groups: m.vGroups}))
	if err := m.vocabReduce(ctx, dn, kernels.Sum); err != nil {
		return err
	}
	if gu != u {
		if err := m.after(ctx, gu, Backward); err != nil {
			return err
		}
	}
	be.RMSNormGrad(dx, m.grad(u, 0), dn, a.x, a.rstd, m.weight(u, 0), kernels.Tensor{})
	return m.after(ctx, u, Backward)
}

// blockBackward takes dy, the gradient of the block's output, and leaves the
// gradient of its input in dx. dy is used up.
func (m *Model) blockBackward(ctx context.Context, u int, a *blockActs, dy, dx kernels.Tensor, seqs int) error {
	be, s := m.be, &m.mem
	w, g := func(i int) kernels.Tensor { return m.weight(u, i) }, func(i int) kernels.Tensor { return m.grad(u, i) }

	// Feed-forward: y = x1 + (h Wd' + b).
	m.biasGrad(u, 3, dy)
	be.MatMulTN(g(pDown), dy, a.h)
	be.MatMulNN(s.dh, append(s.terms[:0], kernels.Term{A: dy, B: w(pDown)}))
	be.SwiGLUGrad(s.dz, a.up, s.dh, a.gate, a.up) // du replaces up, which nothing needs any more
	be.MatMulTN(g(pGate), s.dz, a.n2)
	be.MatMulTN(g(pUp), a.up, a.n2)
	m.biasGrad(u, 1, s.dz)
	m.biasGrad(u, 2, a.up)
	be.MatMulNN(s.dn, append(s.terms[:0],
		kernels.Term{A: s.dz, B: w(pGate), Groups: m.downGroups},
		kernels.Term{A: a.up, B: w(pUp), Groups: m.downGroups}))
	if err := m.sum(ctx, s.dn); err != nil {
		return err
	}
	m.tap(u, Backward, "dmlp", s.dn, shard.Range{Hi: m.c.Hidden}, m.c.Hidden)
	// dy becomes the gradient of x1: dy + d(branch).
	be.RMSNormGrad(dy, g(pNorm2), s.dn, a.x1, a.rstd2, w(pNorm2), dy)

	// Attention: x1 = x + (o Wo' + b).
	m.biasGrad(u, 0, dy)
	be.MatMulTN(g(pO), dy, a.o)
	be.MatMulNN(s.do, append(s.terms[:0], kernels.Term{A: dy, B: w(pO)}))
	be.AttentionGrad(s.dq, s.dk, s.dv, s.do, a.p, a.q, a.k, a.v, m.attention(seqs))
	for _, d := range [2]kernels.Tensor{s.dk, s.dv} {
		if err := reduce(ctx, m.KV, d, kernels.Sum); err != nil {
			return err
		}
	}
	be.Rope(s.dq, m.cos, m.sin, true)
	be.Rope(s.dk, m.cos, m.sin, true)
	be.MatMulTN(g(pQ), s.dq, a.n1)
	be.MatMulTN(g(pK), s.dk, a.n1)
	be.MatMulTN(g(pV), s.dv, a.n1)
	if m.c.QKVBias {
		be.ColumnSum(g(pBiases), s.dq)
		be.ColumnSum(g(pBiases+1), s.dk)
		be.ColumnSum(g(pBiases+2), s.dv)
	}
	terms := append(s.terms[:0], kernels.Term{A: s.dq, B: w(pQ), Groups: m.qGroups})
	if m.kvGroups != nil {
		terms = append(terms, kernels.Term{A: s.dk, B: w(pK), Groups: m.kvGroups}, kernels.Term{A: s.dv, B: w(pV), Groups: m.kvGroups})
	}
	be.MatMulNN(s.dn, terms)
	if err := m.sum(ctx, s.dn); err != nil {
		return err
	}
	m.tap(u, Backward, "dattn", s.dn, shard.Range{Hi: m.c.Hidden}, m.c.Hidden)
	be.RMSNormGrad(dx, g(pNorm1), s.dn, a.x, a.rstd1, w(pNorm1), dy)
	return nil
}

// biasGrad adds the column sums of d to the gradient of linear bias i.
func (m *Model) biasGrad(u, i int, d kernels.Tensor) {
	if m.c.LinearBias {
		m.be.ColumnSum(m.linearBias(m.g, u, i), d)
	}
}
