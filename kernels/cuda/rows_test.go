//go:build cuda

package cuda

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/lockstep-ml/lockstep/kernels"
)

// TestManyRows: kernels whose blocks share the rows give the bits of the definition for more
// rows than a grid has blocks.
func TestManyRows(t *testing.T) {
	const rows = maxGridY + 100
	b, r := opened(t), rand.New(rand.NewPCG(8, 9))
	tokens := make([]int32, rows)
	for i := range tokens {
		tokens[i] = int32(i)
	}
	for name, f := range map[string]func(be kernels.Backend, at func(view) kernels.Tensor){
		"AddBias": func(be kernels.Backend, at func(view) kernels.Tensor) { be.AddBias(at(pair(0, rows)), at(pair(1, 1))) },
		"Residual": func(be kernels.Backend, at func(view) kernels.Tensor) {
			be.Residual(at(pair(0, rows)), at(pair(1, rows)), at(pair(2, rows)), at(pair(3, 1)))
		},
		"Embedding": func(be kernels.Backend, at func(view) kernels.Tensor) {
			be.Embedding(at(pair(0, rows)), at(pair(1, rows)), tokens, 0)
		},
		"EmbeddingGrad": func(be kernels.Backend, at func(view) kernels.Tensor) {
			be.EmbeddingGrad(at(pair(0, rows)), at(pair(1, rows)), tokens, 0)
		},
		"Rope": func(be kernels.Backend, at func(view) kernels.Tensor) {
			angle := view{2 * 1 * rows, 3, 1, 1}
			be.Rope(at(pair(0, rows)), at(angle), at(view{angle.off + 3, 3, 1, 1}), false)
		},
		"CrossEntropy": func(be kernels.Backend, at func(view) kernels.Tensor) {
			row := func(i int) kernels.Tensor { return at(view{2*i*rows + 7, 1, rows, rows}) }
			be.CrossEntropy(row(4), at(pair(0, rows)), row(1), row(2), row(3), tokens, rows-1, 0.5)
		},
		"Attention": func(be kernels.Backend, at func(view) kernels.Tensor) {
			one := func(i int) kernels.Tensor { return at(view{2 * i * rows, rows, 1, 1}) }
			be.Attention(one(0), one(1), one(2), one(3), one(4), kernels.Heads{Seqs: rows, T: 1, Heads: 1, KVHeads: 1, Dim: 1, KVGroups: 1, Scale: 0.5})
		},
		"AttentionGrad": func(be kernels.Backend, at func(view) kernels.Tensor) {
			one := func(i int) kernels.Tensor { return at(view{i * rows, rows, 1, 1}) }
			be.AttentionGrad(one(0), one(1), one(2), one(3), one(4), one(5), one(6), one(7), kernels.Heads{Seqs: rows, T: 1, Heads: 1, KVHeads: 1, Dim: 1, KVGroups: 1, Scale: 0.5})
		},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && strings.HasPrefix(name, "Attention") {
				t.Skip("a block to each row takes long")
			}
			w := newTwins(t, b, r, 10*rows)
			w.do(f)
			if name == "AttentionGrad" {
				part := make([]float32, rows) // p is anything now
				w.do(func(be kernels.Backend, at func(view) kernels.Tensor) {
					be.Write(at(view{4 * rows, 1, rows, rows}), part)
				})
			}
			if at := w.differs(t); at >= 0 {
				t.Errorf("element %d differs", at)
			}
		})
	}
}

// pair is part i of a memory, of rows of two elements.
func pair(i, rows int) view { return view{2 * i * (maxGridY + 100), rows, 2, 2} }
