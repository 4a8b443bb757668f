package gen

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// TestParagraphs: of n paragraphs there are n sequences or more, whatever their bytes.
func TestParagraphs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c spec.Config
		c.Model.Vocab, c.Model.SeqLen = '\r'+1, rapid.IntRange(1, 40).Draw(t, "sequence length")
		n := rapid.IntRange(1, 6).Draw(t, "paragraphs")
		text := Paragraphs(t, c, n)
		if _, err := data.New(text, data.Options{SeqLen: c.Model.SeqLen, PerStep: n, Vocab: c.Model.Vocab}); err != nil {
			t.Fatalf("%q: %v", text.Bytes, err)
		}
	})
}
