package model

import (
	"fmt"
	"slices"
	"strings"
)

// configs are the named configurations: the fixtures nano and odd, sizes for
// benchmarks, published models (Llama 2 and 3, Mistral, Qwen2), and shapes of
// models that this decoder is not. No field of odd is a default or nano's, so
// that a constant in its place shows.
func configs() []Config {
	g := func(t, d int) Groups { return Groups{Tensor: t, Data: d} }
	return []Config{
		{Name: "nano", Vocab: 256, Hidden: 32, Layers: 4, Heads: 8, KVHeads: 4, HeadDim: 8, Intermediate: 64, SeqLen: 32,
			InitStd: 0.1, Groups: g(4, 8)},
		{Name: "odd", Vocab: 258, Hidden: 35, Layers: 4, Heads: 4, KVHeads: 2, HeadDim: 10, Intermediate: 92, SeqLen: 45,
			Tied: true, QKVBias: true, NormEps: 1e-3, RopeTheta: 500, InitStd: 0.12, InitBias: 0.08, Groups: g(4, 4)},
		{Name: "tiny", Vocab: 1000, Hidden: 64, Layers: 2, Heads: 2, KVHeads: 2, HeadDim: 32, Intermediate: 256, SeqLen: 64, Groups: g(2, 4)},
		{Name: "5M", Vocab: 4096, Hidden: 256, Layers: 4, Heads: 8, KVHeads: 4, HeadDim: 32, Intermediate: 768, SeqLen: 128, Groups: g(4, 8)},
		{Name: "50M", Vocab: 32768, Hidden: 512, Layers: 12, Heads: 8, KVHeads: 2, HeadDim: 64, Intermediate: 2048, SeqLen: 512, Groups: g(4, 8)},
		{Name: "125M", Vocab: 32768, Hidden: 768, Layers: 16, Heads: 12, KVHeads: 4, HeadDim: 64, Intermediate: 3072, SeqLen: 1024, Groups: g(4, 8)},
		{Name: "350M", Vocab: 32768, Hidden: 1024, Layers: 24, Heads: 16, KVHeads: 4, HeadDim: 64, Intermediate: 4096, SeqLen: 1024, Groups: g(8, 8)},
		{Name: "qwen2-0.5b", Vocab: 151936, Hidden: 896, Layers: 24, Heads: 14, KVHeads: 2, HeadDim: 64, Intermediate: 4864, SeqLen: 2048,
			Tied: true, QKVBias: true, RopeTheta: 1e6, NormEps: 1e-6, Groups: g(2, 8)},
		{Name: "qwen2-1.5b", Vocab: 151936, Hidden: 1536, Layers: 28, Heads: 12, KVHeads: 2, HeadDim: 128, Intermediate: 8960, SeqLen: 2048,
			Tied: true, QKVBias: true, RopeTheta: 1e6, NormEps: 1e-6, Groups: g(4, 8)},
		{Name: "qwen2-7b", Vocab: 152064, Hidden: 3584, Layers: 28, Heads: 28, KVHeads: 4, HeadDim: 128, Intermediate: 18944, SeqLen: 4096,
			QKVBias: true, RopeTheta: 1e6, NormEps: 1e-6, Groups: g(4, 8)},
		{Name: "llama2-7b", Vocab: 32000, Hidden: 4096, Layers: 32, Heads: 32, KVHeads: 32, HeadDim: 128, Intermediate: 11008, SeqLen: 4096, Groups: g(8, 8)},
		{Name: "llama2-13b", Vocab: 32000, Hidden: 5120, Layers: 40, Heads: 40, KVHeads: 40, HeadDim: 128, Intermediate: 13824, SeqLen: 4096, Groups: g(8, 8)},
		{Name: "llama3-8b", Vocab: 128256, Hidden: 4096, Layers: 32, Heads: 32, KVHeads: 8, HeadDim: 128, Intermediate: 14336, SeqLen: 8192,
			RopeTheta: 5e5, Groups: g(8, 8)},
		{Name: "mistral-7b", Vocab: 32000, Hidden: 4096, Layers: 32, Heads: 32, KVHeads: 8, HeadDim: 128, Intermediate: 14336, SeqLen: 4096, Groups: g(8, 8)},
		{Name: "qwen3-4b-shape", Vocab: 151936, Hidden: 2560, Layers: 36, Heads: 32, KVHeads: 8, HeadDim: 128, Intermediate: 9728, SeqLen: 4096,
			Tied: true, RopeTheta: 1e6, NormEps: 1e-6, Groups: g(8, 8)},
		{Name: "qwen3.5-9b-shape", Vocab: 248320, Hidden: 4096, Layers: 32, Heads: 16, KVHeads: 4, HeadDim: 256, Intermediate: 12288, SeqLen: 4096,
			RopeTheta: 1e7, NormEps: 1e-6, Groups: g(8, 8)},
	}
}

// shapeSuffix ends the name of a configuration that has the sizes of a published
// model but not its architecture.
const shapeSuffix = "-shape"

// lacks says of the shapes what the published model has and this decoder has not.
func lacks() map[string]string {
	return map[string]string{
		"qwen3-4b-shape":   "Qwen3-4B without its norms of queries and keys (9,216 parameters)",
		"qwen3.5-9b-shape": "full attention everywhere, where Qwen3.5-9B is a hybrid with linear attention",
	}
}

// Names lists the named configurations.
func Names() []string {
	var out []string
	for _, c := range configs() {
		out = append(out, c.Name)
	}
	return out
}

// List is a line for every named configuration: its name, how many parameters it
// has, whatever the name promises, and of a shape what it lacks.
func List() string {
	var b strings.Builder
	for _, c := range configs() {
		fmt.Fprintf(&b, "  %-16s  %14s", c.Name, thousands(c.Params()))
		if s := lacks()[c.Name]; s != "" {
			b.WriteString("  " + s)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// thousands writes n with commas between groups of three digits.
func thousands(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Named returns a valid copy of a named configuration.
func Named(name string) (Config, error) {
	all := configs()
	i := slices.IndexFunc(all, func(c Config) bool { return strings.EqualFold(c.Name, name) })
	if i < 0 {
		if s := strings.ToLower(name) + shapeSuffix; lacks()[s] != "" {
			return Config{}, fmt.Errorf("config %q: this decoder is not that model; %s is its shape: %s", name, s, lacks()[s])
		}
		return Config{}, fmt.Errorf("config %q: known are %s", name, strings.Join(Names(), ", "))
	}
	c := all[i]
	return c, c.Validate()
}
