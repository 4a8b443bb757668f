package model

import (
	"math"
	"strings"
	"testing"
)

func TestExactParameterCounts(t *testing.T) {
	// Sums done by hand from the shapes; upstream's published totals where there
	// are any: 350M 398,509,056 tied and 432,063,488 untied, tiny 195,392 and
	// 259,392, llama2-7b 6,738,415,616, mistral-7b 7,241,732,096.
	for _, c := range []struct {
		name         string
		tied, untied int64
	}{
		{"nano", 8192 + 4*12352 + 32, 2*8192 + 4*12352 + 32},
		{"odd", 65105, 65105 + 258*35},
		{"tiny", 195392, 259392},
		{"5M", 1048576 + 4*786944 + 256, 2*1048576 + 4*786944 + 256},
		{"50M", 62402560 + 512, 62402560 + 512 + 16777216},
		{"125M", 163603200, 188769024},
		{"350M", 398509056, 432063488},
		{"llama2-7b", 6738415616 - 131072000, 6738415616},
		{"mistral-7b", 7241732096 - 131072000, 7241732096},
		{"llama2-13b", 13015864320 - 163840000, 13015864320},
		{"qwen2-0.5b", 494032768, 494032768 + 136134656},
		{"qwen2-1.5b", 1543714304, 1543714304 + 233373696},
		{"qwen2-7b", 7615616512 - 544997376, 7615616512},
		{"llama3-8b", 8030261248 - 128256*4096, 8030261248},
		{"qwen3-4b-shape", 4022468096 - 36*2*128, 4022468096 - 36*2*128 + 151936*2560}, // published, less the per-head norms that this decoder lacks
		{"qwen3.5-9b-shape", 7191400448, 7191400448 + 1017118720},
	} {
		m, err := Named(c.name)
		if err != nil {
			t.Fatal(err)
		}
		for _, tied := range []bool{true, false} {
			m.Tied = tied
			l := NewLayout(m, Whole(m))
			if int64(l.Owned) != m.Params() {
				t.Errorf("%s tied=%v: layout owns %d elements, Params is %d", c.name, tied, l.Owned, m.Params())
			}
			want := c.untied
			if tied {
				want = c.tied
			}
			if m.Params() != want {
				t.Errorf("%s tied=%v: %d parameters, want %d", c.name, tied, m.Params(), want)
			}
		}
	}
}

func TestConfigRefusals(t *testing.T) {
	for _, c := range []struct {
		change func(*Config)
		says   string
	}{
		{func(c *Config) { c.Vocab = 0 }, "vocab=0"},
		{func(c *Config) { c.HeadDim = 7 }, "head_dim=7"},
		{func(c *Config) { c.KVHeads = 3 }, "kv_heads=3"},
		{func(c *Config) { c.Groups.Tensor = 3 }, "groups.tensor=3"},
		{func(c *Config) { c.Groups.Data = 6 }, "groups.data=6"},
		{func(c *Config) { c.Groups.Tensor = 16 }, "must divide heads=8"},
		{func(c *Config) { c.Intermediate = 66 }, "must divide intermediate=66"},
		{func(c *Config) { c.Heads, c.KVHeads, c.Groups.Tensor = 12, 6, 4 }, "kv_heads=6"},
		{func(c *Config) { c.NormEps = -1 }, "norm_eps=-1: must lie from"},
		{func(c *Config) { c.NormEps = math.NaN() }, "norm_eps=NaN"},
		{func(c *Config) { c.NormEps = 1e-39 }, "norm_eps=1e-39"},
		{func(c *Config) { c.RopeTheta = 0.5 }, "rope_theta=0.5"},
		{func(c *Config) { c.RopeTheta = math.Inf(1) }, "rope_theta=+Inf"},
		{func(c *Config) { c.InitStd = -0.1 }, "init_std=-0.1"},
		{func(c *Config) { c.InitStd = math.NaN() }, "init_std=NaN"},
		{func(c *Config) { c.InitBias = -1 }, "init_bias=-1"},
		{func(c *Config) { c.InitBias = math.Inf(1) }, "init_bias=+Inf"},
		{func(c *Config) { c.Layers = 1 << 25 }, "layers=33554432"},
	} {
		m, _ := Named("nano")
		c.change(&m)
		if err := m.Validate(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("got %v, want an error that says %q", err, c.says)
		}
	}
	if _, err := Named("nine-billion"); err == nil || !strings.Contains(err.Error(), "nano") {
		t.Errorf("unknown name: %v", err)
	}
}
