package gen

import (
	"pgregory.net/rapid"

	"github.com/lockstep-ml/lockstep/core/model"
)

// Config draws a small valid model: any number of tensor groups up to 8, KV
// heads fewer or more than groups, sizes that no power of two divides, every
// combination of biases and tying. Vocabularies hold at least minVocab tokens
// and need not have one for each group.
func Config(t *rapid.T, minVocab int) model.Config {
	pick := func(name string, from ...int) int { return rapid.SampledFrom(from).Draw(t, name) }
	flag := func(name string) bool { return rapid.Bool().Draw(t, name) }
	g := pick("tensor groups", 1, 2, 4, 8)
	heads := g * pick("heads per group", 1, 2, 3)
	var kv []int
	for n := 1; n <= heads; n++ {
		if heads%n == 0 && (n%g == 0 || g%n == 0) {
			kv = append(kv, n)
		}
	}
	c := model.Config{
		Name: "drawn", Heads: heads, KVHeads: pick("kv heads", kv...), HeadDim: pick("head dim", 2, 4, 6),
		Hidden: rapid.IntRange(2, 9).Draw(t, "hidden"), Intermediate: g * pick("intermediate per group", 1, 2, 5),
		Vocab: minVocab + rapid.IntRange(0, 13).Draw(t, "vocab over the least"), SeqLen: rapid.IntRange(1, 6).Draw(t, "sequence length"),
		Layers: pick("layers", 1, 2), Tied: flag("tied"), QKVBias: flag("qkv bias"), LinearBias: flag("linear bias"),
		InitStd: 0.5, InitBias: 0.5, Groups: model.Groups{Tensor: g, Data: pick("data groups", 1, 2, 4, 8)},
	}
	if err := c.Validate(); err != nil {
		t.Fatalf("drawn model: %v", err)
	}
	return c
}
