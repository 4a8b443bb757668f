package model

import (
	"context"

	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Forward runs the part over one micro-batch and leaves in a what Backward
// needs. On the last stage it computes the gradient of the logits and adds the
// summed loss of the micro-batch's tokens to the bound accumulator; elsewhere
// a.Out is the stage's output. A micro-batch without sequences does nothing but
// announce its units.
func (m *Model) Forward(ctx context.Context, a *Acts, b Batch) error {
	m.In(a, b.Seqs)
	a.batch = b
	m.mem.layout(m, b.Seqs, &arena{buf: m.mem.buf})
	if err := m.embed(ctx, a, b); err != nil {
		return err
	}
	for i := range a.blocks {
		u := m.block(m.part.Layers.Lo + i)
		if err := m.before(ctx, u, Forward); err != nil {
			return err
		}
		next := a.x
		if i+1 < len(a.blocks) {
			next = a.blocks[i+1].x
		}
		if err := m.blockForward(ctx, u, &a.blocks[i], next, b.Seqs); err != nil {
			return err
		}
		if err := m.after(ctx, u, Forward); err != nil {
			return err
		}
	}
	if !m.part.Last {
		return nil
	}
	return m.lossForward(ctx, a, b)
}

func (m *Model) embed(ctx context.Context, a *Acts, b Batch) error {
	x := a.blocks[0].x
	if !m.part.First {
		return nil // the owner has put it there
	}
	if err := m.before(ctx, 0, Forward); err != nil {
		return err
	}
	m.be.Embedding(x, m.weight(0, 0), b.Tokens, m.s.vocab.Lo)
	if m.part.VocabParallel {
		if err := m.sum(ctx, x); err != nil {
			return err
		}
	}
	m.tap(0, Forward, "embed", x, shard.Range{Hi: m.c.Hidden}, m.c.Hidden)
	return m.after(ctx, 0, Forward)
}

// blockForward: n1 = norm(x); q, k, v = n1 W' + b, rotated; o = attention;
// x1 = x + (o Wo' + b); n2 = norm(x1); h = swiglu(n2 Wg', n2 Wu');
// out = x1 + (h Wd' + b).
func (m *Model) blockForward(ctx context.Context, u int, a *blockActs, out kernels.Tensor, seqs int) error {
	be, w := m.be, func(i int) kernels.Tensor { return m.weight(u, i) }
	be.RMSNorm(a.n1, a.rstd1, a.x, w(pNorm1), m.c.NormEps)
	be.MatMulNT(a.q, a.n1, w(pQ), nil)
	be.MatMulNT(a.k, a.n1, w(pK), nil)
	be.MatMulNT(a.v, a.n1, w(pV), nil)
	if m.c.QKVBias {
		be.AddBias(a.q, w(pBiases))
		be.AddBias(a.k, w(pBiases+1))
		be.AddBias(a.v, w(pBiases+2))
	}
	m.tap(u, Forward, "q", a.q, m.columns(m.s.heads), m.c.QDim())
	m.tap(u, Forward, "k", a.k, m.columns(m.s.kv), m.c.KVDim())
	m.tap(u, Forward, "v", a.v, m.columns(m.s.kv), m.c.KVDim())
	be.Rope(a.q, m.cos, m.sin, false)
	be.Rope(a.k, m.cos, m.sin, false)
	be.Attention(a.o, a.p, a.q, a.k, a.v, m.attention(seqs))
	y := m.mem.y
	be.MatMulNT(y, a.o, w(pO), m.oGroups)
	if err := m.sum(ctx, y); err != nil {
		return err
	}
	all := shard.Range{Hi: m.c.Hidden}
	m.tap(u, Forward, "attn", y, all, m.c.Hidden)
	be.Residual(a.x1, a.x, y, m.linearBias(m.w, u, 0))

	be.RMSNorm(a.n2, a.rstd2, a.x1, w(pNorm2), m.c.NormEps)
	be.MatMulNT(a.gate, a.n2, w(pGate), nil)
	be.MatMulNT(a.up, a.n2, w(pUp), nil)
	if m.c.LinearBias {
		be.AddBias(a.gate, m.linearBias(m.w, u, 1))
		be.AddBias(a.up, m.linearBias(m.w, u, 2))
	}
	m.tap(u, Forward, "gate", a.gate, m.s.inter, m.c.Intermediate)
	m.tap(u, Forward, "up", a.up, m.s.inter, m.c.Intermediate)
	be.SwiGLU(a.h, a.gate, a.up)
	be.MatMulNT(y, a.h, w(pDown), m.downGroups)
	if err := m.sum(ctx, y); err != nil {
		return err
	}
	m.tap(u, Forward, "mlp", y, all, m.c.Hidden)
	be.Residual(out, a.x1, y, m.linearBias(m.w, u, 3))
	return nil
}

// linearBias is the bias of o, gate, up or down (0 to 3) in the given unit
// tensors, absent where the configuration has none.
func (m *Model) linearBias(units []kernels.Tensor, u, i int) kernels.Tensor {
	if !m.c.LinearBias {
		return kernels.Tensor{}
	}
	first := pBiases
	if m.c.QKVBias {
		first += 3
	}
	return m.view(units[u], u, first+i)
}

// lossForward: logits z = norm(x) W'; nll = log sum exp z - z_y; and, since the
// factor 1/N is known, the gradient of the logits in place of z.
func (m *Model) lossForward(ctx context.Context, a *Acts, b Batch) error {
	u := m.final()
	if err := m.before(ctx, u, Forward); err != nil {
		return err
	}
	hu, hp := m.head()
	gu, _ := m.headGrad()
	if gu != u {
		if err := m.before(ctx, gu, Forward); err != nil {
			return err
		}
	}
	be, first := m.be, m.s.vocab.Lo
	be.RMSNorm(a.norm, a.rstd, a.x, m.weight(u, 0), m.c.NormEps)
	be.MatMulNT(a.logits, a.norm, m.weight(hu, hp), nil)
	m.tap(gu, Forward, "logits", a.logits, m.s.vocab, m.c.Vocab)
	top, target, sum := a.stats[0], a.stats[1], a.stats[2]
	be.LogitsMax(top, target, a.logits, b.Targets, first)
	if err := m.vocabReduce(ctx, top, kernels.Max); err != nil {
		return err
	}
	if err := m.vocabReduce(ctx, target, kernels.Sum); err != nil {
		return err
	}
	be.LogitsExpSum(sum, a.logits, top, m.vGroups)
	if err := m.vocabReduce(ctx, sum, kernels.Sum); err != nil {
		return err
	}
	be.CrossEntropy(a.nll, a.logits, sum, top, target, b.Targets, first, b.InvN)
	if gu != u {
		if err := m.after(ctx, gu, Forward); err != nil {
			return err
		}
	}
	return m.after(ctx, u, Forward)
}

func (m *Model) vocabReduce(ctx context.Context, x kernels.Tensor, op kernels.Op) error {
	if !m.part.VocabParallel {
		return nil
	}
	return reduce(ctx, m.TP, x, op)
}
