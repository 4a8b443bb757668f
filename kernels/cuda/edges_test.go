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

// TestManyRowsOfDigests: blocks share the rows of a digest whose places are apart.
func TestManyRowsOfDigests(t *testing.T) {
	const rows = hashBlocks + 77
	b := opened(t)
	w := newTwins(t, b, rand.New(rand.NewPCG(10, 11)), 8*rows)
	var got []kernels.Digest
	var counts []int
	w.do(func(be kernels.Backend, at func(view) kernels.Tensor) {
		var d, changed kernels.Digest
		be.Hash(&d, at(view{1, rows, 3, 4}), kernels.Place{ID: 1, RowStride: 9})
		counts = append(counts, be.HashChanged(&changed, at(view{0, rows, 3, 3}), at(view{4 * rows, rows, 3, 3}), kernels.Place{ID: 1, RowStride: 9}))
		got = append(got, d, changed)
	})
	if got[0] != got[2] || got[1] != got[3] || counts[0] != counts[1] {
		t.Errorf("digests %v and %d changed, want %v and %d", got[:2], counts[0], got[2:], counts[1])
	}
}

// TestManyKeyGroups: the tree over key groups that are more than the larger tile keeps.
func TestManyKeyGroups(t *testing.T) {
	b := opened(t)
	for _, groups := range []int{shallow, shallow + 1, 2*shallow + 3} {
		h := kernels.Heads{Seqs: 2, T: 5, Heads: 2 * groups, KVHeads: 2, Dim: 3, KVGroups: groups, Scale: 0.5}
		w := newTwins(t, b, rand.New(rand.NewPCG(12, uint64(groups))), 60_000)
		rows, of, next := h.Seqs*h.T, map[string]view{}, 0
		for _, x := range []struct {
			name       string
			rows, cols int
		}{
			{"dq", rows, h.Heads * h.Dim}, {"dk", rows, h.KVHeads * h.Dim}, {"dv", rows, h.KVHeads * h.Dim}, {"do", rows, h.Heads * h.Dim},
			{"q", rows, h.Heads * h.Dim}, {"k", rows, h.KVHeads * h.Dim}, {"v", rows, h.KVHeads * h.Dim}, {"p", h.Seqs * h.Heads * h.T, h.T},
		} {
			of[x.name] = view{next, x.rows, x.cols, x.cols}
			next += x.rows * x.cols
		}
		w.do(func(be kernels.Backend, at func(view) kernels.Tensor) {
			x := func(name string) kernels.Tensor { return at(of[name]) }
			be.AttentionGrad(x("dq"), x("dk"), x("dv"), x("do"), x("p"), x("q"), x("k"), x("v"), h)
			be.Fill(x("p"), 0) // it is anything now
		})
		if at := w.differs(t); at >= 0 {
			t.Errorf("%d key groups: element %d differs", groups, at)
		}
	}
}

// TestListsAnew: lists of tokens that are more than there is room for, some of them again,
// each waited for and all together.
func TestListsAnew(t *testing.T) {
	const n, table = 70_000, 50
	const lists = 3 * arenaSize / (4 * n)
	b := opened(t)
	w := newTwins(t, b, rand.New(rand.NewPCG(14, 15)), lists*n+table)
	for _, waiting := range []bool{true, false} {
		w.do(func(be kernels.Backend, at func(view) kernels.Tensor) { be.Fill(at(view{0, lists, n, n}), 0) })
		for i := range lists {
			tokens := make([]int32, n)
			for j := range tokens {
				tokens[j] = int32((j + i%4) % table)
			}
			w.do(func(be kernels.Backend, at func(view) kernels.Tensor) {
				be.Embedding(at(view{i * n, n, 1, 1}), at(view{lists * n, table, 1, 1}), tokens, 0)
			})
			clear(tokens) // they are the caller's again
			if !waiting && i < lists-1 {
				continue
			}
			if at := w.differs(t); at >= 0 {
				t.Fatalf("list %d, waiting %t: element %d differs", i, waiting, at)
			}
		}
	}
}

// TestProductsAtTheEnd: no product reads beyond memory that ends with its operands, which
// are aligned and less than a tile.
func TestProductsAtTheEnd(t *testing.T) {
	b := opened(t)
	for _, n := range []int{4, 36, 132} {
		const k = 20
		var bufs []kernels.Buffer
		for _, size := range []int{n * n, k * n, k * n, n * k, n * k} {
			buf, err := b.Alloc(size)
			if err != nil {
				t.Fatal(err)
			}
			bufs = append(bufs, buf)
		}
		at := func(i, rows, cols int) kernels.Tensor { return kernels.Flat(bufs[i]).As(rows, cols) }
		b.MatMulTN(at(0, n, n), at(1, k, n), at(2, k, n))
		b.MatMulNN(at(0, n, n), []kernels.Term{{A: at(3, n, k), B: at(2, k, n)}})
		b.MatMulNT(at(0, n, n), at(3, n, k), at(4, n, k), nil)
		if err := b.Sync(); err != nil {
			t.Errorf("%d rows and columns: %v", n, err)
		}
		for _, buf := range bufs {
			b.Free(buf)
		}
	}
}

// TestManySources: a reduction of so many sources that its tree is deep, the last one on a
// level of its own.
func TestManySources(t *testing.T) {
	const n = 40
	b := opened(t)
	for _, sources := range []int{63, 64, 129, 300} {
		w := newTwins(t, b, rand.New(rand.NewPCG(18, uint64(sources))), n*(sources+1))
		w.do(func(be kernels.Backend, at func(view) kernels.Tensor) {
			var from []kernels.Tensor
			for i := range sources {
				from = append(from, at(view{(i + 1) * n, 1, n, n}))
			}
			be.Reduce([]kernels.Tensor{at(view{0, 1, n, n})}, from, kernels.Sum)
		})
		if at := w.differs(t); at >= 0 {
			t.Errorf("%d sources: element %d differs", sources, at)
		}
	}
}

// TestFreeWithProducts: a product that waits is computed before memory that it reads is
// given back.
func TestFreeWithProducts(t *testing.T) {
	const n = 20
	b := opened(t)
	w := newTwins(t, b, rand.New(rand.NewPCG(20, 21)), 2*n*n)
	w.do(func(be kernels.Backend, at func(view) kernels.Tensor) {
		other, err := be.Alloc(n * n)
		if err != nil {
			t.Fatal(err)
		}
		be.Fill(kernels.Flat(other), 0.5)
		be.MatMulNT(at(view{0, n, n, n}), at(view{n * n, n, n, n}), kernels.Flat(other).As(n, n), nil)
		be.Free(other)
	})
	if at := w.differs(t); at >= 0 {
		t.Errorf("element %d differs", at)
	}
}
