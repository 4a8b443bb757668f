// Package model is a Llama-style decoder with hand-written forward and backward
// passes over a kernels.Backend: RMSNorm, rotary positions (half rotation),
// grouped-query attention, SwiGLU, optional tied embeddings and biases.
//
// Every sum that a parallel plan may split is grouped from the start, so the
// dense model gives the bits of any plan (kernels, canonical arithmetic). The
// model never looks at data: it only names buffers and calls the backend.
//
// Letters: n tokens of a micro-batch, H hidden size, V vocabulary, I
// intermediate size, T sequence length, L layers.
package model

import (
	"fmt"

	"github.com/lockstep-ml/lockstep/core/shard"
)

// Groups are the canonical groups: sums over them are trees whatever the plan.
type Groups struct {
	// Tensor (G) cuts heads, intermediate size and vocabulary; a power of two.
	Tensor int `json:"tensor"`
	// Data (D) is the number of logical workers; a power of two. A run has no more than
	// 256 of them that never have a sequence, which changes no bit.
	Data int `json:"data"`
}

// Config is the shape of a model. All sizes are in elements.
type Config struct {
	Name         string  `json:"name"`
	Vocab        int     `json:"vocab"`
	Hidden       int     `json:"hidden"`
	Layers       int     `json:"layers"`
	Heads        int     `json:"heads"`
	KVHeads      int     `json:"kv_heads"`
	HeadDim      int     `json:"head_dim"` // Heads*HeadDim need not be Hidden
	Intermediate int     `json:"intermediate"`
	SeqLen       int     `json:"seq_len"`               // T: tokens of a padded sequence
	Tied         bool    `json:"tied,omitempty"`        // lm_head is the embedding
	QKVBias      bool    `json:"qkv_bias,omitempty"`    // biases of q, k, v (Qwen2)
	LinearBias   bool    `json:"linear_bias,omitempty"` // biases of o, gate, up, down
	NormEps      float64 `json:"norm_eps"`              // 0 is 1e-5
	RopeTheta    float64 `json:"rope_theta"`            // 0 is 10000
	InitStd      float64 `json:"init_std"`              // of weights; 0 is 0.02
	InitBias     float64 `json:"init_bias,omitempty"`   // standard deviation of biases
	Groups       Groups  `json:"groups"`                // 0 is 1 each
}

// Validate fills defaults and refuses sizes that do not fit, naming value and
// rule.
func (c *Config) Validate() error {
	setDefault(&c.NormEps, 1e-5)
	setDefault(&c.RopeTheta, 10000)
	setDefault(&c.InitStd, 0.02)
	setDefault(&c.Groups.Tensor, 1)
	setDefault(&c.Groups.Data, 1)
	for _, s := range []struct {
		name string
		v    int
	}{{"vocab", c.Vocab}, {"hidden", c.Hidden}, {"layers", c.Layers}, {"heads", c.Heads}, {"kv_heads", c.KVHeads},
		{"head_dim", c.HeadDim}, {"intermediate", c.Intermediate}, {"seq_len", c.SeqLen}} {
		if s.v < 1 || s.v > 1<<24 {
			return fmt.Errorf("model %s: %s=%d: must be from 1 to %d", c.Name, s.name, s.v, 1<<24)
		}
	}
	g := c.Groups.Tensor
	switch n := c.size(); {
	case n > maxParams:
		return fmt.Errorf("model %s: %.3g parameters: must be at most %.3g", c.Name, n, float64(maxParams))
	case c.HeadDim%2 != 0:
		return fmt.Errorf("model %s: head_dim=%d: must be even for rotary positions", c.Name, c.HeadDim)
	case c.Heads%c.KVHeads != 0:
		return fmt.Errorf("model %s: heads=%d: must be a multiple of kv_heads=%d", c.Name, c.Heads, c.KVHeads)
	case !shard.IsPowerOfTwo(g):
		return fmt.Errorf("model %s: groups.tensor=%d: must be a power of two", c.Name, g)
	case !shard.IsPowerOfTwo(c.Groups.Data):
		return fmt.Errorf("model %s: groups.data=%d: must be a power of two", c.Name, c.Groups.Data)
	case g > maxGroups || c.Groups.Data > maxGroups:
		return fmt.Errorf("model %s: groups.tensor=%d, groups.data=%d: must be at most %d", c.Name, g, c.Groups.Data, maxGroups)
	case c.Heads%g != 0:
		return fmt.Errorf("model %s: groups.tensor=%d: must divide heads=%d", c.Name, g, c.Heads)
	case c.Intermediate%g != 0:
		return fmt.Errorf("model %s: groups.tensor=%d: must divide intermediate=%d", c.Name, g, c.Intermediate)
	case c.KVHeads%g != 0 && g%c.KVHeads != 0:
		return fmt.Errorf("model %s: groups.tensor=%d: must divide kv_heads=%d or be a multiple of it", c.Name, g, c.KVHeads)
	}
	for _, r := range []struct {
		name      string
		v, lo, hi float64
	}{{"norm_eps", c.NormEps, 0x1p-126, 1}, {"rope_theta", c.RopeTheta, 1, 1e30}, {"init_std", c.InitStd, 0x1p-126, 1e6}, {"init_bias", c.InitBias, 0, 1e6}} {
		if !(r.v >= r.lo && r.v <= r.hi) { // of a NaN neither is true
			return fmt.Errorf("model %s: %s=%v: must lie from %.3g to %v", c.Name, r.name, r.v, r.lo, r.hi)
		}
	}
	return nil
}

// maxParams keeps every count of elements, bytes and products of them within an
// integer, maxGroups what is listed by group within memory.
const (
	maxParams = 1 << 50
	maxGroups = 1 << 16
)

// size is Params, rounded, of sizes that may be too large for an integer.
func (c *Config) size() float64 {
	v, h, i := float64(c.Vocab), float64(c.Hidden), float64(c.Intermediate)
	q, kv := float64(float64(c.Heads)*float64(c.HeadDim)), float64(float64(c.KVHeads)*float64(c.HeadDim))
	block := float64(2*h*(q+kv+1)) + float64(3*h*i) + q + float64(2*kv) + float64(2*h) + float64(2*i)
	return float64(2*v*h) + float64(float64(c.Layers)*block)
}

func setDefault[T int | float64](x *T, v T) {
	if *x == 0 {
		*x = v
	}
}

// QDim is the width of the query projection, KVDim of the key projection.
func (c *Config) QDim() int { return c.Heads * c.HeadDim }

// KVDim is the width of the key and of the value projection.
func (c *Config) KVDim() int { return c.KVHeads * c.HeadDim }

// Params is the exact number of parameters; a tied head counts once.
func (c *Config) Params() int64 {
	v, h, i := int64(c.Vocab), int64(c.Hidden), int64(c.Intermediate)
	q, kv := int64(c.QDim()), int64(c.KVDim())
	block := 2*h + 2*h*q + 2*h*kv + 3*h*i
	if c.QKVBias {
		block += q + 2*kv
	}
	if c.LinearBias {
		block += 2*h + 2*i
	}
	total := v*h + int64(c.Layers)*block + h
	if !c.Tied {
		total += v * h
	}
	return total
}
