package model

import (
	"strings"
	"testing"
)

// published is what a model's own config.json says, and its parameter count.
type published struct {
	vocab, hidden, layers, heads, kv, dim, intermediate int
	theta, eps                                          float64
	tied, qkvBias                                       bool
	params                                              int64
}

// Configurations under a published model's name are that model.
func TestPublishedModels(t *testing.T) {
	models := map[string]published{
		"qwen2-0.5b": {151936, 896, 24, 14, 2, 64, 4864, 1e6, 1e-6, true, true, 494032768},
		"qwen2-1.5b": {151936, 1536, 28, 12, 2, 128, 8960, 1e6, 1e-6, true, true, 1543714304},
		"qwen2-7b":   {152064, 3584, 28, 28, 4, 128, 18944, 1e6, 1e-6, false, true, 7615616512},
		"llama2-7b":  {32000, 4096, 32, 32, 32, 128, 11008, 1e4, 1e-5, false, false, 6738415616},
		"llama2-13b": {32000, 5120, 40, 40, 40, 128, 13824, 1e4, 1e-5, false, false, 13015864320},
		"llama3-8b":  {128256, 4096, 32, 32, 8, 128, 14336, 5e5, 1e-5, false, false, 8030261248},
		"mistral-7b": {32000, 4096, 32, 32, 8, 128, 14336, 1e4, 1e-5, false, false, 7241732096},
	}
	own := map[string]bool{"nano": true, "odd": true, "tiny": true, "5M": true, "50M": true, "125M": true, "350M": true}
	for _, name := range Names() {
		c, err := Named(name)
		if err != nil {
			t.Fatal(err)
		}
		got := published{c.Vocab, c.Hidden, c.Layers, c.Heads, c.KVHeads, c.HeadDim, c.Intermediate, c.RopeTheta, c.NormEps, c.Tied, c.QKVBias, c.Params()}
		want, ok := models[name]
		switch shape := strings.HasSuffix(name, shapeSuffix); {
		case shape != (lacks()[name] != ""):
			t.Errorf("%s: a shape says what it lacks, and only a shape", name)
		case !ok && !shape && !own[name]:
			t.Errorf("%s: neither a published model, a shape, nor of this project", name)
		case ok && got != want:
			t.Errorf("%s is %+v, published is %+v", name, got, want)
		}
	}
}

func TestListSaysTrueSizes(t *testing.T) {
	list := List()
	for name, size := range map[string]string{"nano": "65,824", "5M": "5,245,184", "50M": "79,180,288", "125M": "188,769,024", "350M": "432,063,488", "llama3-8b": "8,030,261,248"} {
		found := false
		for line := range strings.Lines(list) {
			f := strings.Fields(line)
			found = found || f[0] == name && f[1] == size
		}
		if !found {
			t.Errorf("%s has %s parameters; the list is\n%s", name, size, list)
		}
	}
	if n := strings.Count(list, "\n"); n != len(Names()) {
		t.Errorf("%d lines for %d configurations", n, len(Names()))
	}
	for n, want := range map[int64]string{7: "7", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := thousands(n); got != want {
			t.Errorf("%d prints as %s", n, got)
		}
	}
}

func TestNamesOfModelsThatThisIsNot(t *testing.T) {
	for name, says := range map[string]string{"qwen3-4b": "norms of queries and keys", "Qwen3.5-9B": "hybrid"} {
		if _, err := Named(name); err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), shapeSuffix) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
