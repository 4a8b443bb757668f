package independent

import "fmt"

// Shape is the shape of a Llama decoder, in elements, and its constants.
type Shape struct {
	Vocab, Hidden, Layers, Heads, KVHeads, HeadDim, Intermediate, SeqLen int

	Tied       bool // the head is the embedding
	QKVBias    bool // biases of q, k, v
	LinearBias bool // biases of o, gate, up, down

	NormEps, RopeTheta float64
	// InitStd and InitBias are the standard deviations of initial matrices and
	// biases.
	InitStd, InitBias float64
}

// maxSize bounds every size of a Shape.
const maxSize = 1 << 24

// Check refuses sizes that do not fit, naming value and rule.
func (s *Shape) Check() error {
	for _, x := range []struct {
		name string
		v    int
	}{{"vocab", s.Vocab}, {"hidden", s.Hidden}, {"layers", s.Layers}, {"heads", s.Heads}, {"kv_heads", s.KVHeads},
		{"head_dim", s.HeadDim}, {"intermediate", s.Intermediate}, {"seq_len", s.SeqLen}} {
		if x.v < 1 || x.v > maxSize {
			return fmt.Errorf("independent model: %s=%d: must be from 1 to %d", x.name, x.v, maxSize)
		}
	}
	switch {
	case s.HeadDim%2 != 0:
		return fmt.Errorf("independent model: head_dim=%d: must be even", s.HeadDim)
	case s.Heads%s.KVHeads != 0:
		return fmt.Errorf("independent model: heads=%d: must be a multiple of kv_heads=%d", s.Heads, s.KVHeads)
	case !(s.NormEps >= 0 && s.RopeTheta >= 1):
		return fmt.Errorf("independent model: norm_eps=%v, rope_theta=%v: must be at least 0 and 1", s.NormEps, s.RopeTheta)
	}
	return nil
}

// Param is one parameter tensor: Rows x Cols, vectors have one row.
type Param struct {
	Name       string
	Rows, Cols int
	// Decays is true for matrices: norm weights and biases have no weight decay.
	Decays bool
}

// Len is the number of elements.
func (p Param) Len() int { return p.Rows * p.Cols }

// Names of the parameters outside the blocks; those of blocks are made by
// InBlock.
const (
	embedName = "model.embed_tokens.weight"
	normName  = "model.norm.weight"
	headName  = "lm_head.weight"
)

// InBlock is the Hugging Face name of a parameter of block l.
func InBlock(l int, what string) string { return fmt.Sprintf("model.layers.%d.%s", l, what) }

// Params lists the logical parameters; a tied head is none.
func (s *Shape) Params() []Param {
	q, kv := s.Heads*s.HeadDim, s.KVHeads*s.HeadDim
	out := []Param{{embedName, s.Vocab, s.Hidden, true}}
	for l := range s.Layers {
		matrix := func(what string, rows, cols int) {
			out = append(out, Param{InBlock(l, what+".weight"), rows, cols, true})
		}
		vector := func(what string, n int) { out = append(out, Param{InBlock(l, what), 1, n, false}) }
		vector("input_layernorm.weight", s.Hidden)
		vector("post_attention_layernorm.weight", s.Hidden)
		matrix("self_attn.q_proj", q, s.Hidden)
		matrix("self_attn.k_proj", kv, s.Hidden)
		matrix("self_attn.v_proj", kv, s.Hidden)
		matrix("self_attn.o_proj", s.Hidden, q)
		matrix("mlp.gate_proj", s.Intermediate, s.Hidden)
		matrix("mlp.up_proj", s.Intermediate, s.Hidden)
		matrix("mlp.down_proj", s.Hidden, s.Intermediate)
		if s.QKVBias {
			vector("self_attn.q_proj.bias", q)
			vector("self_attn.k_proj.bias", kv)
			vector("self_attn.v_proj.bias", kv)
		}
		if s.LinearBias {
			vector("self_attn.o_proj.bias", s.Hidden)
			vector("mlp.gate_proj.bias", s.Intermediate)
			vector("mlp.up_proj.bias", s.Intermediate)
			vector("mlp.down_proj.bias", s.Hidden)
		}
	}
	out = append(out, Param{normName, 1, s.Hidden, false})
	if !s.Tied {
		out = append(out, Param{headName, s.Vocab, s.Hidden, true})
	}
	return out
}
