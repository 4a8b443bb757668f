package model

import (
	"context"
	"fmt"
	"math"

	"github.com/lockstep-ml/lockstep/core/num"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Phase is the direction of a pass.
type Phase uint8

// The phases.
const (
	Forward Phase = iota
	Backward
)

// Reducer reduces over the ranks that share a split sum. A communicator is one.
type Reducer interface {
	AllReduce(ctx context.Context, x kernels.Tensor, op kernels.Op) error
}

// Hooks tell the owner of the weights when a unit (index in Layout.Units) is
// about to be used and when it is done with: weights may be gathered before and
// released after; after Backward the gradient contribution of the micro-batch
// to that unit is complete. The unit of a tied head is announced like any other;
// where the rank has the embedding, its weights are the embedding's.
type Hooks interface {
	Before(ctx context.Context, unit int, ph Phase) error
	After(ctx context.Context, unit int, ph Phase) error
}

// Tap is shown tensor x of a unit: rows of tokens, columns [cols.Lo, cols.Hi) of
// full ones (a slice on a tensor-parallel rank, all where it is replicated).
// Forward names: embed, q, k, v, attn, gate, up, mlp, logits; backward: dmlp and
// dattn, the gradients that the branches give their input.
type Tap func(unit int, ph Phase, name string, x kernels.Tensor, cols shard.Range, full int)

// Model is one rank's part of a decoder. Weights and gradients are bound by
// their owner, unit by unit; the model owns tables and scratch.
type Model struct {
	Layout Layout
	// Hooks, if not nil, are called round every use of a unit.
	Hooks Hooks
	// TP sums over the tensor-parallel ranks, KV over the ranks that hold the
	// same KV head; nil where there is one rank.
	TP, KV Reducer
	// Tap, if not nil, is shown activations and their gradients as they arise.
	Tap Tap

	be   kernels.Backend
	c    Config
	part Part
	s    split
	cos  kernels.Tensor
	sin  kernels.Tensor
	w, g []kernels.Tensor // by unit, flat
	loss kernels.Tensor
	mem  scratch

	oGroups, downGroups, vGroups []int
	qGroups, kvGroups            []int // kvGroups is nil where the group adds no k and v
}

// Batch is one micro-batch: Seqs padded sequences of Config.SeqLen tokens, all
// of one logical worker. Negative targets are ignored.
type Batch struct {
	Tokens, Targets []int32
	Seqs            int
	// InvN is 1 / (valid tokens of the global batch).
	InvN float64
}

// New makes the model of a valid configuration's part for micro-batches of at
// most seqs sequences, with tables and scratch allocated.
func New(be kernels.Backend, c Config, p Part, seqs int) (*Model, error) {
	if err := p.Check(c); err != nil {
		return nil, err
	}
	m := &Model{be: be, c: c, part: p, s: p.split(c), Layout: NewLayout(c, p)}
	m.w = make([]kernels.Tensor, len(m.Layout.Units))
	m.g = make([]kernels.Tensor, len(m.Layout.Units))
	m.groups()
	if err := m.tables(); err != nil {
		return nil, err
	}
	return m, m.mem.alloc(m, seqs)
}

// groups precomputes the bounds of the grouped sums, relative to this part.
func (m *Model) groups() {
	c, s := m.c, m.s
	n := s.groups.Len()
	even := func(width int) []int { return shard.Bounds(n*width, n) }
	m.qGroups = even(c.Heads / c.Groups.Tensor * c.HeadDim)
	m.oGroups = m.qGroups
	m.downGroups = even(c.Intermediate / c.Groups.Tensor)
	lo, hi := 0, c.Groups.Tensor
	if m.part.VocabParallel {
		lo, hi = s.groups.Lo, s.groups.Hi
	}
	for g := lo; g <= hi; g++ {
		m.vGroups = append(m.vGroups, s.vBounds[g]-s.vBounds[lo])
	}
	if c.Groups.Tensor <= c.KVHeads {
		m.kvGroups = even(c.KVHeads / c.Groups.Tensor * c.HeadDim)
		return
	}
	// More groups than KV heads: only a head's first group adds k and v.
	rep, k := c.Groups.Tensor/c.KVHeads, 0
	bounds := []int{0}
	for g := s.groups.Lo; g < s.groups.Hi; g++ {
		if g%rep == 0 {
			k += c.HeadDim
		}
		bounds = append(bounds, k)
	}
	if k > 0 {
		m.kvGroups = bounds
	}
}

// tables writes the rotary tables: angle t * theta^(-2i/head_dim), computed in
// fixed-order float64.
func (m *Model) tables() error {
	t, half := m.c.SeqLen, m.c.HeadDim/2
	var err error
	alloc := func() kernels.Tensor {
		b, e := m.be.Alloc(t * half)
		if e != nil {
			err = fmt.Errorf("rotary table: %w", e)
			return kernels.Tensor{}
		}
		return kernels.Flat(b).As(t, half)
	}
	m.cos, m.sin = alloc(), alloc()
	if err != nil {
		return err
	}
	cos, sin := Rotary(t, m.c.HeadDim, m.c.RopeTheta)
	m.be.WriteWide(m.cos, cos)
	m.be.WriteWide(m.sin, sin)
	return nil
}

// Rotary is the table of cos and sin of t * theta^(-2i/dim), t rows of dim/2.
func Rotary(t, dim int, theta float64) (cos, sin []float64) {
	half := dim / 2
	cos, sin = make([]float64, t*half), make([]float64, t*half)
	for i := range half {
		f := num.InvFreq(theta, i, dim)
		for p := range t {
			a := float64(float64(p) * f)
			cos[p*half+i], sin[p*half+i] = num.Cos(a), num.Sin(a)
		}
	}
	return cos, sin
}

// BindWeights gives unit u its weights, flat, of the unit's length; absent until
// they are needed. A tied head on the rank with the embedding has none: it reads
// the embedding's unless it is given its own.
func (m *Model) BindWeights(u int, w kernels.Tensor) { m.w[u] = w }

// BindGrads gives unit u the buffer that backward passes add its gradient to.
func (m *Model) BindGrads(u int, g kernels.Tensor) { m.g[u] = g }

// BindLoss gives the one-element accumulator of the summed loss.
func (m *Model) BindLoss(loss kernels.Tensor) { m.loss = loss }

// Config is the model's configuration.
func (m *Model) Config() Config { return m.c }

// Part is what this rank holds.
func (m *Model) Part() Part { return m.part }

// view is parameter i of unit u within the unit's flat tensor.
func (m *Model) view(t kernels.Tensor, u, i int) kernels.Tensor {
	unit := &m.Layout.Units[u]
	p := &m.Layout.Params[unit.Params[i]]
	off := p.Off - unit.Lo
	return t.Range(off, off+p.Len()).As(p.R.Len(), p.C.Len())
}

func (m *Model) weight(u, i int) kernels.Tensor { return m.view(m.w[u], u, i) }
func (m *Model) grad(u, i int) kernels.Tensor   { return m.view(m.g[u], u, i) }

// units by role
func (m *Model) block(l int) int {
	u := l - m.part.Layers.Lo
	if m.part.First {
		u++
	}
	return u
}
func (m *Model) final() int { return m.block(m.part.Layers.Hi) }

// head gives the unit and place of the head's weight.
func (m *Model) head() (unit, place int) {
	switch {
	case !m.c.Tied:
		return m.final(), 1
	case m.part.First && m.w[m.final()+1].Absent():
		return 0, 0
	}
	return m.final() + 1, 0
}

// headGrad gives the unit and place of the head's gradient.
func (m *Model) headGrad() (unit, place int) {
	if m.c.Tied {
		return m.final() + 1, 0
	}
	return m.final(), 1
}

func (m *Model) before(ctx context.Context, u int, ph Phase) error {
	if m.Hooks == nil {
		return nil
	}
	return m.Hooks.Before(ctx, u, ph)
}

func (m *Model) after(ctx context.Context, u int, ph Phase) error {
	if m.Hooks == nil {
		return nil
	}
	return m.Hooks.After(ctx, u, ph)
}

func (m *Model) tap(u int, ph Phase, name string, x kernels.Tensor, cols shard.Range, full int) {
	if m.Tap != nil {
		m.Tap(u, ph, name, x, cols, full)
	}
}

// columns gives the columns that heads r fill.
func (m *Model) columns(r shard.Range) shard.Range {
	return shard.Range{Lo: r.Lo * m.c.HeadDim, Hi: r.Hi * m.c.HeadDim}
}

// sum finishes a grouped sum over the tensor-parallel ranks.
func (m *Model) sum(ctx context.Context, x kernels.Tensor) error {
	return reduce(ctx, m.TP, x, kernels.Sum)
}

func reduce(ctx context.Context, r Reducer, x kernels.Tensor, op kernels.Op) error {
	if r == nil {
		return nil
	}
	return r.AllReduce(ctx, x, op)
}

// attention describes this part's heads for n sequences.
func (m *Model) attention(seqs int) kernels.Heads {
	nh, nk := m.s.LocalHeads(), m.s.LocalKVHeads()
	return kernels.Heads{Seqs: seqs, T: m.c.SeqLen, Heads: nh, KVHeads: nk, Dim: m.c.HeadDim,
		KVGroups: max(1, m.s.groups.Len()/nk), Scale: 1 / math.Sqrt(float64(m.c.HeadDim))}
}
