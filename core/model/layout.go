package model

import (
	"fmt"
	"slices"

	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Part is the share of the model that a rank holds.
type Part struct {
	Layers      shard.Range // blocks [Lo, Hi)
	First, Last bool        // holds the embedding; holds final norm and head
	Tensor      shard.Part  // tensor-parallel rank and size; size divides Groups.Tensor
	// VocabParallel splits embedding and head over the tensor-parallel ranks by
	// the shard rule over groups; else they are replicated.
	VocabParallel bool
}

// Whole is the part of a rank that holds everything.
func Whole(c Config) Part {
	return Part{Layers: shard.Range{Hi: c.Layers}, First: true, Last: true, Tensor: shard.Part{Size: 1}}
}

// Param is one parameter tensor as this rank holds it: rows R and columns C of
// a logical Rows x Cols tensor (vectors have one row), row-major at Off of the
// rank's flat buffers.
type Param struct {
	Name string
	// ID is the identity under which elements are hashed and initialised: that of
	// the embedding for a tied head.
	ID         uint64
	Unit       int // index in Layout.Units
	Rows, Cols int
	R, C       shard.Range
	Off        int
	// Counts marks the copy that counts once among tensor-parallel replicas:
	// in norms, digests and checkpoints.
	Counts bool
	// Decays is false for vectors: norm weights and biases are never decayed.
	Decays bool
}

// Len is the number of elements held.
func (p *Param) Len() int { return p.R.Len() * p.C.Len() }

// Range is where the elements lie in the flat buffers.
func (p *Param) Range() shard.Range { return shard.Range{Lo: p.Off, Hi: p.Off + p.Len()} }

// Unit is what is gathered, reduced and released together: the embedding, one
// block, final norm with head. A tied head is a unit of its own that holds only
// a gradient source (and, on a stage without the embedding, a copy of it).
type Unit struct {
	Name   string
	Params []int // indices in Layout.Params
	shard.Range
}

// Layout is the table of a rank's flat parameter and gradient buffers.
type Layout struct {
	Part   Part
	Params []Param
	Units  []Unit
	// Owned is the length of the prefix that has an optimizer state: all but
	// the unit of a tied head.
	Owned int
	// Grads is the length of the gradient buffer, Weights of the parameter
	// buffer: Owned, and beyond it the tied head where the rank needs it.
	Grads, Weights int
}

// Unit names.
const (
	EmbedUnit = "embed"
	FinalUnit = "final"
	HeadUnit  = "head"
)

// BlockUnit is the unit's name of block l.
func BlockUnit(l int) string { return fmt.Sprintf("block.%d", l) }

// EmbedName and HeadName are the parameters that a tied model shares.
const (
	EmbedName = "model.embed_tokens.weight"
	NormName  = "model.norm.weight"
	HeadName  = "lm_head.weight"
)

// TensorParallel is the part's view of a model that is split over heads and
// intermediate size.
func (p Part) TensorParallel(c Config) shard.TensorParallel {
	return shard.TensorParallel{Rank: p.Tensor.Index, Size: p.Tensor.Size, Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim,
		Intermediate: c.Intermediate, Vocab: c.Vocab}
}

// split holds the local ranges that a part implies.
type split struct {
	shard.TensorParallel
	groups  shard.Range // tensor groups
	heads   shard.Range
	kv      shard.Range
	inter   shard.Range
	vocab   shard.Range
	kvOnce  bool  // this rank's KV heads count
	vBounds []int // bounds of the vocabulary groups over the whole vocabulary
}

func (p Part) split(c Config) split {
	t := p.TensorParallel(c)
	s := split{TensorParallel: t, groups: p.Tensor.Of(c.Groups.Tensor), heads: t.HeadRange(), kv: t.KVHeadRange(), inter: t.IntermediateRange(),
		vocab: shard.Range{Hi: c.Vocab}, kvOnce: t.Rank%t.KVReplicas() == 0, vBounds: shard.Bounds(c.Vocab, c.Groups.Tensor)}
	if p.VocabParallel {
		s.vocab = shard.Range{Lo: s.vBounds[s.groups.Lo], Hi: s.vBounds[s.groups.Hi]}
	}
	return s
}

// Check refuses a part that the configuration cannot be cut into.
func (p Part) Check(c Config) error {
	if err := p.TensorParallel(c).Validate(); err != nil {
		return fmt.Errorf("model %s: %w", c.Name, err)
	}
	if c.Groups.Tensor%p.Tensor.Size != 0 {
		return fmt.Errorf("model %s: tp=%d: must divide groups.tensor=%d", c.Name, p.Tensor.Size, c.Groups.Tensor)
	}
	if p.Layers.Lo < 0 || p.Layers.Hi > c.Layers || p.Layers.Empty() {
		return fmt.Errorf("model %s: layers [%d,%d): must be a non-empty part of [0,%d)", c.Name, p.Layers.Lo, p.Layers.Hi, c.Layers)
	}
	return nil
}

// NewLayout lays out the part of a valid configuration.
func NewLayout(c Config, p Part) Layout {
	b := layoutBuilder{first: p.Tensor.Index == 0}
	b.Part = p
	s := p.split(c)
	hidden, one := shard.Range{Hi: c.Hidden}, shard.Range{Hi: 1}
	vocabOnce := p.VocabParallel || b.first
	if p.First {
		b.unit(EmbedUnit)
		b.matrix(EmbedName, c.Vocab, c.Hidden, s.vocab, hidden, vocabOnce)
	}
	for l := p.Layers.Lo; l < p.Layers.Hi; l++ {
		b.block(c, s, l)
	}
	if p.Last {
		b.unit(FinalUnit)
		b.add(Param{Name: NormName, Rows: 1, Cols: c.Hidden, R: one, C: hidden, Counts: b.first})
		if !c.Tied {
			b.matrix(HeadName, c.Vocab, c.Hidden, s.vocab, hidden, vocabOnce)
		}
	}
	b.Owned, b.Grads, b.Weights = b.off, b.off, b.off
	if p.Last && c.Tied {
		b.unit(HeadUnit)
		b.matrix(HeadName, c.Vocab, c.Hidden, s.vocab, hidden, false)
		b.Params[len(b.Params)-1].ID = kernels.TensorID(EmbedName)
		b.Grads = b.off
		if !p.First {
			b.Weights = b.off
		}
	}
	return b.Layout
}

type layoutBuilder struct {
	Layout
	off   int
	first bool // tensor-parallel rank 0: its copies of replicated tensors count
}

func (b *layoutBuilder) unit(name string) {
	b.Units = append(b.Units, Unit{Name: name, Range: shard.Range{Lo: b.off, Hi: b.off}})
}

func (b *layoutBuilder) add(p Param) {
	u := &b.Units[len(b.Units)-1]
	p.Unit, p.Off, p.ID = len(b.Units)-1, b.off, kernels.TensorID(p.Name)
	u.Params = append(u.Params, len(b.Params))
	b.Params = append(b.Params, p)
	b.off += p.Len()
	u.Hi = b.off
}

func (b *layoutBuilder) matrix(name string, rows, cols int, r, c shard.Range, counts bool) {
	b.add(Param{Name: name, Rows: rows, Cols: cols, R: r, C: c, Counts: counts, Decays: true})
}

// Places of a block's parameters within its unit; biases follow as the
// configuration has them.
const (
	pNorm1 = iota
	pQ
	pK
	pV
	pO
	pNorm2
	pGate
	pUp
	pDown
	pBiases
)

func (b *layoutBuilder) block(c Config, s split, l int) {
	b.unit(BlockUnit(l))
	name := func(s string) string { return fmt.Sprintf("model.layers.%d.%s", l, s) }
	dim := func(r shard.Range) shard.Range { return shard.Range{Lo: r.Lo * c.HeadDim, Hi: r.Hi * c.HeadDim} }
	q, kv, in := dim(s.heads), dim(s.kv), s.inter
	h := shard.Range{Hi: c.Hidden}
	vector := func(n string, full int, r shard.Range, counts bool) {
		b.add(Param{Name: name(n), Rows: 1, Cols: full, R: shard.Range{Hi: 1}, C: r, Counts: counts})
	}
	vector("input_layernorm.weight", c.Hidden, h, b.first)
	b.matrix(name("self_attn.q_proj.weight"), c.QDim(), c.Hidden, q, h, true)
	b.matrix(name("self_attn.k_proj.weight"), c.KVDim(), c.Hidden, kv, h, s.kvOnce)
	b.matrix(name("self_attn.v_proj.weight"), c.KVDim(), c.Hidden, kv, h, s.kvOnce)
	b.matrix(name("self_attn.o_proj.weight"), c.Hidden, c.QDim(), h, q, true)
	vector("post_attention_layernorm.weight", c.Hidden, h, b.first)
	b.matrix(name("mlp.gate_proj.weight"), c.Intermediate, c.Hidden, in, h, true)
	b.matrix(name("mlp.up_proj.weight"), c.Intermediate, c.Hidden, in, h, true)
	b.matrix(name("mlp.down_proj.weight"), c.Hidden, c.Intermediate, h, in, true)
	if c.QKVBias {
		vector("self_attn.q_proj.bias", c.QDim(), q, true)
		vector("self_attn.k_proj.bias", c.KVDim(), kv, s.kvOnce)
		vector("self_attn.v_proj.bias", c.KVDim(), kv, s.kvOnce)
	}
	if c.LinearBias {
		vector("self_attn.o_proj.bias", c.Hidden, h, b.first)
		vector("mlp.gate_proj.bias", c.Intermediate, in, true)
		vector("mlp.up_proj.bias", c.Intermediate, in, true)
		vector("mlp.down_proj.bias", c.Hidden, h, b.first)
	}
}

// Order lists the units as a pass uses them. The tied head works within the
// final norm's unit: its use begins after that unit's and ends before it.
func (l *Layout) Order(ph Phase) []int {
	out := make([]int, len(l.Units))
	for u := range out {
		out[u] = u
	}
	if ph == Forward {
		return out
	}
	slices.Reverse(out)
	if l.Units[out[0]].Name == HeadUnit {
		out[0], out[1] = out[1], out[0]
	}
	return out
}

// Source is the unit whose weights unit u reads: its own, or the embedding for a
// tied head beside it.
func (l *Layout) Source(u int) int {
	if l.Units[u].Hi > l.Weights {
		return 0
	}
	return u
}

// Pieces cuts elements [r.Lo, r.Hi) of the flat buffer by parameter: it calls f
// for each parameter with the part of the parameter's own elements.
func (l *Layout) Pieces(r shard.Range, f func(p *Param, local shard.Range)) {
	for i := range l.Params {
		p := &l.Params[i]
		if x := p.Range().Intersect(r); !x.Empty() {
			f(p, x.Shift(-p.Off))
		}
	}
}
