//go:build cuda

package cuda

import "github.com/lockstep-ml/lockstep/kernels"

// heads adds what kernels.Heads says but for the scale.
func (c call) heads(h kernels.Heads) call {
	return c.ints(h.Seqs, h.T, h.Heads, h.KVHeads, h.Dim, h.KVGroups)
}

// Attention implements kernels.Kernels.
func (b *Backend) Attention(o, p, q, k, v kernels.Tensor, h kernels.Heads) {
	kernels.CheckAttention(o, p, q, k, v, h)
	if p.Len() == 0 {
		return
	}
	b.enter()
	defer b.mu.Unlock()
	n, t := h.Seqs*h.Heads, tile{m: 32, n: 32}
	b.begin("attention_scores").tensors(p, q, k).heads(h).floats(h.Scale).tiles(t, h.T, h.T, n)
	b.begin("attention_softmax").tensors(p).heads(h).warps(n * h.T)
	if h.Dim > 0 {
		b.begin("attention_values").tensors(o, p, v).heads(h).tiles(t, h.T, h.Dim, n)
	}
}

// AttentionGrad implements kernels.Kernels; p is left as it is.
func (b *Backend) AttentionGrad(dq, dk, dv, do, p, q, k, v kernels.Tensor, h kernels.Heads) {
	kernels.CheckAttentionGrad(dq, dk, dv, do, p, q, k, v, h)
	if q.Len() == 0 {
		return
	}
	b.enter()
	defer b.mu.Unlock()
	scratch := b.work(p.Len())
	if scratch == nil {
		return
	}
	ds := kernels.Tensor{Buf: &buffer{mem: scratch, n: p.Len()}, Rows: p.Rows, Cols: p.Cols, Stride: p.Cols}
	n, t := h.Seqs*h.Heads, tile{m: 32, n: 32}
	b.begin("attention_dp").tensors(ds, do, v).heads(h).tiles(t, h.T, h.T, n)
	b.begin("attention_ds").tensors(ds, p).heads(h).floats(h.Scale).warps(n * h.T)
	b.begin("attention_values").tensors(dq, ds, k).heads(h).tiles(t, h.T, h.Dim, n)
	kernel := "attention_keys_32x32"
	if h.KVGroups > shallow {
		kernel, t = "attention_keys_16x16", tile{m: 16, n: 16}
	}
	b.begin(kernel).tensors(dk, ds, q).heads(h).tiles(t, h.T, h.Dim, h.Seqs*h.KVHeads)
	b.begin(kernel).tensors(dv, p, do).heads(h).tiles(t, h.T, h.Dim, h.Seqs*h.KVHeads)
}
