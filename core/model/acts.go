package model

import (
	"fmt"

	"github.com/lockstep-ml/lockstep/kernels"
)

// Acts holds what one micro-batch's forward pass leaves for its backward pass.
type Acts struct {
	buf   kernels.Buffer
	seqs  int // of the micro-batch in it; capacity is cap
	cap   int
	batch Batch

	blocks []blockActs
	x      kernels.Tensor // n x H: input of the final norm, or the stage's output
	norm   kernels.Tensor
	rstd   kernels.Tensor
	logits kernels.Tensor // n x local V: logits, then their gradient
	nll    kernels.Tensor
	stats  [3]kernels.Tensor // max, target logit, sum of exponentials
}

// blockActs are the activations of one block, n rows each.
type blockActs struct {
	x, n1, rstd1  kernels.Tensor
	q, k, v, p, o kernels.Tensor
	x1, n2, rstd2 kernels.Tensor
	gate, up, h   kernels.Tensor
}

// arena hands out consecutive parts of one buffer; with no buffer it counts.
type arena struct {
	buf kernels.Buffer
	off int
}

func (a *arena) take(rows, cols int) kernels.Tensor {
	t := kernels.Tensor{Buf: a.buf, Off: a.off, Rows: rows, Cols: cols, Stride: cols}
	a.off += rows * cols
	return t
}

// layout assigns every tensor for n tokens of seqs sequences.
func (a *Acts) layout(m *Model, seqs int, mem *arena) {
	c := &m.c
	n := seqs * c.SeqLen
	qw, kw, iw := m.s.LocalQSize(), m.s.LocalKVSize(), m.s.LocalIntermediate()
	next := mem.take(n, c.Hidden)
	for i := range a.blocks {
		b := &a.blocks[i]
		b.x = next
		b.n1, b.rstd1 = mem.take(n, c.Hidden), mem.take(1, n)
		b.q, b.k, b.v, b.o = mem.take(n, qw), mem.take(n, kw), mem.take(n, kw), mem.take(n, qw)
		b.p = mem.take(seqs*m.s.LocalHeads()*c.SeqLen, c.SeqLen)
		b.x1, b.n2, b.rstd2 = mem.take(n, c.Hidden), mem.take(n, c.Hidden), mem.take(1, n)
		b.gate, b.up, b.h = mem.take(n, iw), mem.take(n, iw), mem.take(n, iw)
		next = mem.take(n, c.Hidden)
	}
	a.x = next
	if m.part.Last {
		a.norm, a.rstd = mem.take(n, c.Hidden), mem.take(1, n)
		a.logits, a.nll = mem.take(n, m.s.vocab.Len()), mem.take(n, 1)
		for i := range a.stats {
			a.stats[i] = mem.take(1, n)
		}
	}
}

// NewActs allocates from mem, the model's backend or a decorator of it, the
// activations of one micro-batch of at most seqs sequences.
func (m *Model) NewActs(mem kernels.Memory, seqs int) (*Acts, error) {
	a := &Acts{cap: seqs, blocks: make([]blockActs, m.part.Layers.Len())}
	var count arena
	a.layout(m, seqs, &count)
	buf, err := mem.Alloc(count.off)
	if err != nil {
		return nil, fmt.Errorf("activations of %d sequences: %w", seqs, err)
	}
	a.buf = buf
	return a, nil
}

// Memory is all that the activations lie in.
func (a *Acts) Memory() kernels.Tensor { return kernels.Flat(a.buf) }

// FreeActs gives the memory back.
func (m *Model) FreeActs(a *Acts) { m.be.Free(a.buf) }

// In is where a stage without the embedding finds its input for seqs sequences:
// the owner receives into it before Forward.
func (m *Model) In(a *Acts, seqs int) kernels.Tensor {
	a.seqs = seqs
	a.layout(m, seqs, &arena{buf: a.buf})
	return a.blocks[0].x
}

// Out is the stage's output after Forward.
func (a *Acts) Out() kernels.Tensor { return a.x }

// scratch is what passes need only while they run.
type scratch struct {
	buf            kernels.Buffer
	y, dx, dx2, dn kernels.Tensor // n x H
	dq, do         kernels.Tensor // n x q width
	dk, dv         kernels.Tensor // n x kv width
	dh, dz         kernels.Tensor // n x I
	terms          []kernels.Term
}

func (s *scratch) layout(m *Model, seqs int, mem *arena) {
	c := &m.c
	n := seqs * c.SeqLen
	qw, kw, iw := m.s.LocalQSize(), m.s.LocalKVSize(), m.s.LocalIntermediate()
	s.y, s.dx, s.dx2, s.dn = mem.take(n, c.Hidden), mem.take(n, c.Hidden), mem.take(n, c.Hidden), mem.take(n, c.Hidden)
	s.dq, s.do = mem.take(n, qw), mem.take(n, qw)
	s.dk, s.dv = mem.take(n, kw), mem.take(n, kw)
	s.dh, s.dz = mem.take(n, iw), mem.take(n, iw)
}

func (s *scratch) alloc(m *Model, seqs int) error {
	var count arena
	s.layout(m, seqs, &count)
	buf, err := m.be.Alloc(count.off)
	if err != nil {
		return fmt.Errorf("scratch of %d sequences: %w", seqs, err)
	}
	s.buf = buf
	s.terms = make([]kernels.Term, 0, 3)
	return nil
}
