package drill

import (
	"fmt"
	"strings"

	"github.com/lockstep-ml/lockstep/kernels"
)

// misuse is a call whose shapes do not fit; m allocates a matrix.
type misuse struct {
	name string
	call func(k kernels.Backend, m func(rows, cols int) kernels.Tensor)
}

// misuses has at least one call for every kernel with more than one operand.
func misuses() []misuse {
	type tensor = func(rows, cols int) kernels.Tensor
	h := kernels.Heads{Seqs: 1, T: 3, Heads: 2, KVHeads: 1, Dim: 4, KVGroups: 1}
	odd := kernels.Heads{Seqs: 1, T: 3, Heads: 3, KVHeads: 2, Dim: 4, KVGroups: 1}
	return []misuse{
		{"Copy", func(k kernels.Backend, m tensor) { k.Copy(m(1, 4), m(1, 5)) }},
		{"Add", func(k kernels.Backend, m tensor) { k.Add(m(1, 4), m(1, 4), m(1, 3)) }},
		{"Add_strided", func(k kernels.Backend, m tensor) { k.Add(m(2, 3), m(2, 4).ColRange(0, 3), m(2, 3)) }},
		{"Add_absent", func(k kernels.Backend, m tensor) { k.Add(m(2, 3), kernels.Tensor{}, m(2, 3)) }},
		{"Add_outside", func(k kernels.Backend, m tensor) {
			x := m(2, 3)
			x.Off++
			k.Add(m(2, 3), x, m(2, 3))
		}},
		{"MatMulNT_overlappingrows", func(k kernels.Backend, m tensor) {
			a := m(2, 4)
			a.Stride = 3
			k.MatMulNT(m(2, 3), a, m(3, 4), nil)
		}},
		{"Scale", func(k kernels.Backend, m tensor) { k.Scale(m(1, 5), m(1, 4), 2) }},
		{"AddBias", func(k kernels.Backend, m tensor) { k.AddBias(m(2, 4), m(1, 3)) }},
		{"Residual", func(k kernels.Backend, m tensor) { k.Residual(m(2, 4), m(2, 4), m(2, 4), m(1, 5)) }},
		{"ColumnSum", func(k kernels.Backend, m tensor) { k.ColumnSum(m(1, 5), m(2, 4)) }},
		{"MatMulNT_k", func(k kernels.Backend, m tensor) { k.MatMulNT(m(2, 3), m(2, 4), m(3, 5), nil) }},
		{"MatMulNT_c", func(k kernels.Backend, m tensor) { k.MatMulNT(m(3, 2), m(2, 4), m(3, 4), nil) }},
		{"MatMulNT_groups", func(k kernels.Backend, m tensor) { k.MatMulNT(m(2, 3), m(2, 4), m(3, 4), []int{0, 2, 5}) }},
		{"MatMulNT_descending", func(k kernels.Backend, m tensor) { k.MatMulNT(m(2, 3), m(2, 4), m(3, 4), []int{0, 3, 2, 4}) }},
		{"MatMulNN", func(k kernels.Backend, m tensor) { k.MatMulNN(m(2, 3), []kernels.Term{{A: m(2, 4), B: m(5, 3)}}) }},
		{"MatMulNN_groups", func(k kernels.Backend, m tensor) {
			k.MatMulNN(m(2, 3), []kernels.Term{{A: m(2, 4), B: m(4, 3)}, {A: m(2, 4), B: m(4, 3), Groups: []int{0, 2, 4}}})
		}},
		{"MatMulTN", func(k kernels.Backend, m tensor) { k.MatMulTN(m(2, 3), m(4, 2), m(5, 3)) }},
		{"RMSNorm", func(k kernels.Backend, m tensor) { k.RMSNorm(m(2, 4), m(1, 2), m(2, 4), m(1, 3), 1) }},
		{"RMSNormGrad", func(k kernels.Backend, m tensor) {
			k.RMSNormGrad(m(2, 4), m(1, 4), m(2, 4), m(2, 4), m(1, 3), m(1, 4), kernels.Tensor{})
		}},
		{"Rope", func(k kernels.Backend, m tensor) { k.Rope(m(2, 10), m(2, 2), m(2, 2), false) }},
		{"Attention", func(k kernels.Backend, m tensor) { k.Attention(m(3, 8), m(6, 3), m(3, 8), m(3, 8), m(3, 8), h) }},
		{"Attention_heads", func(k kernels.Backend, m tensor) { k.Attention(m(3, 12), m(9, 3), m(3, 12), m(3, 8), m(3, 8), odd) }},
		{"AttentionGrad", func(k kernels.Backend, m tensor) {
			k.AttentionGrad(m(3, 8), m(3, 4), m(3, 4), m(3, 8), m(6, 2), m(3, 8), m(3, 4), m(3, 4), h)
		}},
		{"SwiGLU", func(k kernels.Backend, m tensor) { k.SwiGLU(m(1, 4), m(1, 4), m(1, 5)) }},
		{"SwiGLUGrad", func(k kernels.Backend, m tensor) { k.SwiGLUGrad(m(1, 4), m(1, 4), m(1, 3), m(1, 4), m(1, 4)) }},
		{"Embedding", func(k kernels.Backend, m tensor) { k.Embedding(m(2, 4), m(5, 4), []int32{1}, 0) }},
		{"EmbeddingGrad", func(k kernels.Backend, m tensor) { k.EmbeddingGrad(m(5, 3), m(2, 4), []int32{1, 2}, 0) }},
		{"LogitsMax", func(k kernels.Backend, m tensor) { k.LogitsMax(m(1, 2), m(1, 3), m(2, 4), []int32{1, 2}, 0) }},
		{"LogitsExpSum", func(k kernels.Backend, m tensor) { k.LogitsExpSum(m(1, 2), m(2, 4), m(1, 2), []int{0, 3}) }},
		{"CrossEntropy", func(k kernels.Backend, m tensor) {
			k.CrossEntropy(m(1, 2), m(2, 4), m(1, 2), m(1, 2), m(1, 2), []int32{1, 2, 3}, 0, 1)
		}},
		{"AdamW", func(k kernels.Backend, m tensor) { k.AdamW(m(1, 4), m(1, 4), m(1, 3), m(1, 4), kernels.AdamWParams{}) }},
		{"SGD", func(k kernels.Backend, m tensor) { k.SGD(m(1, 4), m(1, 3), m(1, 4), kernels.SGDParams{}) }},
		{"Reduce", func(k kernels.Backend, m tensor) {
			k.Reduce([]kernels.Tensor{m(1, 4)}, []kernels.Tensor{m(1, 4), m(1, 3)}, kernels.Sum)
		}},
		{"HashChanged", func(k kernels.Backend, m tensor) {
			k.HashChanged(new(kernels.Digest), m(2, 4), m(2, 3), kernels.Place{})
		}},
		{"Read", func(k kernels.Backend, m tensor) { _ = k.Read(make([]float32, 3), m(1, 4)) }},
		{"Write", func(k kernels.Backend, m tensor) { k.Write(m(1, 4), make([]float32, 5)) }},
	}
}

// misuseCases demand a panic that starts with "kernels: ".
func misuseCases() []*Case {
	var out []*Case
	for _, mu := range misuses() {
		out = append(out, demand(Misuse, mu.name, 1, func(b kernels.Backend) error {
			var bufs []kernels.Buffer
			defer func() {
				for _, buf := range bufs {
					b.Free(buf)
				}
			}()
			msg := panicOf(func() {
				mu.call(b, func(rows, cols int) kernels.Tensor {
					buf, err := b.Alloc(rows * cols)
					if err != nil {
						panic(err)
					}
					bufs = append(bufs, buf)
					return kernels.Flat(buf).As(rows, cols)
				})
			})
			if !strings.HasPrefix(msg, "kernels: ") {
				return fmt.Errorf("shapes that do not fit: panic %q, want one that starts with %q", msg, "kernels: ")
			}
			return nil
		}))
	}
	return out
}

// panicOf is what f panics with, as text; "" if it does not.
func panicOf(f func()) (msg string) {
	defer func() {
		if p := recover(); p != nil {
			msg = fmt.Sprint(p)
		}
	}()
	f()
	return ""
}
