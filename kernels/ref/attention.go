package ref

import (
	"math"

	"github.com/lockstep-ml/lockstep/kernels"
)

// head addresses the rows of one head in a matrix of tokens: token t of
// sequence seq has its elements at data[(seq*T+t)*stride+first] and following.
type head[T Float] struct {
	data               []T
	first, dim, stride int
}

func (h head[T]) token(t int) []T {
	lo := h.first + t*h.stride
	return h.data[lo : lo+h.dim : lo+h.dim]
}

// from is the elements of all tokens, from token 0's on.
func (h head[T]) from() []T { return h.data[h.first:] }

// headOf is head i of n in sequence seq.
func headOf[T Float](x []T, h kernels.Heads, n, seq, i int) head[T] {
	stride := n * h.Dim
	return head[T]{data: x, first: seq*h.T*stride + i*h.Dim, dim: h.Dim, stride: stride}
}

func checkHeads(name string, h kernels.Heads) {
	bad := h.Seqs < 0 || h.T < 0 || h.Heads < 0 || h.KVHeads < 0 || h.Dim < 0 || h.KVGroups < 1
	switch {
	case bad:
	case h.KVHeads == 0:
		bad = h.Heads != 0
	default:
		bad = h.Heads%h.KVHeads != 0 || h.Heads/h.KVHeads%h.KVGroups != 0
	}
	if bad {
		misuse(name, "heads %+v", h)
	}
}

// attentionArgs are the checked inputs of both directions.
type attentionArgs[T Float] struct{ p, q, k, v []T }

func checkAttention[T Float](name string, p, q, k, v kernels.Tensor, h kernels.Heads) attentionArgs[T] {
	checkHeads(name, h)
	queries, keys := h.Seqs*h.T*h.Heads*h.Dim, h.Seqs*h.T*h.KVHeads*h.Dim
	return attentionArgs[T]{
		p: sized[T](name, p, h.Seqs*h.Heads*h.T*h.T),
		q: sized[T](name, q, queries),
		k: sized[T](name, k, keys),
		v: sized[T](name, v, keys),
	}
}

// Attention implements kernels.Kernels.
func (b *Backend[T]) Attention(o, p, q, k, v kernels.Tensor, h kernels.Heads) {
	const name = "attention"
	in := checkAttention[T](name, p, q, k, v, h)
	out := sized[T](name, o, len(in.q))
	if h.Heads == 0 {
		return
	}
	share, scale := h.Heads/h.KVHeads, T(h.Scale)
	for seq := range h.Seqs {
		for i := range h.Heads {
			qh, oh := headOf(in.q, h, h.Heads, seq, i), headOf(out, h, h.Heads, seq, i)
			kh, vh := headOf(in.k, h, h.KVHeads, seq, i/share), headOf(in.v, h, h.KVHeads, seq, i/share)
			for t := range h.T {
				at := ((seq*h.Heads+i)*h.T + t) * h.T
				row := in.p[at : at+t+1]
				dots(row, qh.token(t), kh.from(), kh.stride)
				softmax(row, scale)
				attend(oh.token(t), row, vh)
			}
		}
	}
}

// softmax turns the dot products of one query into probabilities.
func softmax[T Float](row []T, scale T) {
	m := T(math.Inf(-1))
	for j, x := range row {
		x *= scale
		row[j] = x
		if x > m {
			m = x
		}
	}
	for j, x := range row {
		row[j] = exp(x - m)
	}
	total := lanesSum(row)
	for j := range row {
		row[j] /= total
	}
}

// attend writes the chain over keys of (p[j], v of token j) to o.
func attend[T Float](o, p []T, v head[T]) {
	clear(o)
	for j, x := range p {
		axpy(o, x, v.token(j))
	}
}

// AttentionGrad implements kernels.Kernels; p is left as it is.
func (b *Backend[T]) AttentionGrad(dq, dk, dv, do, p, q, k, v kernels.Tensor, h kernels.Heads) {
	const name = "attention grad"
	g := attentionGrad[T]{h: h, in: checkAttention[T](name, p, q, k, v, h), scale: T(h.Scale)}
	g.do, g.dq = sized[T](name, do, len(g.in.q)), sized[T](name, dq, len(g.in.q))
	keys, values := sized[T](name, dk, len(g.in.k)), sized[T](name, dv, len(g.in.k))
	n, depth := h.T*h.Dim, stackRows(h.KVGroups)+1
	s := b.scratch(2*h.T + 2*depth*n)
	defer b.release(s)
	g.dp, g.ds = (*s)[:h.T], (*s)[h.T:2*h.T]
	sk := (*s)[2*h.T : 2*h.T+depth*n]
	sv := (*s)[2*h.T+depth*n:]
	for seq := range h.Seqs {
		for i := range h.KVHeads {
			tk, tv := newSumTree(sk[:n], sk[n:]), newSumTree(sv[:n], sv[n:])
			for group := range h.KVGroups {
				g.keyGroup(tk.next(), tv.next(), seq, i, group)
				tk.push()
				tv.push()
			}
			tk.finish()
			tv.finish()
			headOf(keys, h, h.KVHeads, seq, i).store(sk[:n])
			headOf(values, h, h.KVHeads, seq, i).store(sv[:n])
		}
	}
}

// store writes all tokens of a head from rows that lie side by side.
func (h head[T]) store(x []T) {
	if h.dim == 0 {
		return
	}
	for t := range len(x) / h.dim {
		copy(h.token(t), x[t*h.dim:])
	}
}

// attentionGrad is one call of AttentionGrad.
type attentionGrad[T Float] struct {
	h      kernels.Heads
	in     attentionArgs[T]
	do, dq []T
	dp, ds []T // one query's
	scale  T
}

// keyGroup writes one group's share of the gradients of key head i, T x Dim
// each, and the gradients of the group's queries.
func (g *attentionGrad[T]) keyGroup(dk, dv []T, seq, i, group int) {
	clear(dk)
	clear(dv)
	h := g.h
	share := h.Heads / h.KVHeads
	size := share / h.KVGroups
	first := i*share + group*size
	for query := first; query < first+size; query++ {
		g.queryHead(dk, dv, seq, query, i)
	}
}

func (g *attentionGrad[T]) queryHead(dk, dv []T, seq, query, key int) {
	h := g.h
	qh, kh := headOf(g.in.q, h, h.Heads, seq, query), headOf(g.in.k, h, h.KVHeads, seq, key)
	vh := headOf(g.in.v, h, h.KVHeads, seq, key)
	doh, dqh := headOf(g.do, h, h.Heads, seq, query), headOf(g.dq, h, h.Heads, seq, query)
	for t := range h.T {
		at := ((seq*h.Heads+query)*h.T + t) * h.T
		p, do, q, dq := g.in.p[at:at+t+1], doh.token(t), qh.token(t), dqh.token(t)
		ds := g.scores(p, do, vh)
		clear(dq)
		for j, x := range ds {
			axpy(dq, x, kh.token(j))
			axpy(dk[j*h.Dim:(j+1)*h.Dim], x, q)
			axpy(dv[j*h.Dim:(j+1)*h.Dim], p[j], do)
		}
	}
}

// scores is the gradient of one query's scores, before the scale entered.
func (g *attentionGrad[T]) scores(p, do []T, v head[T]) []T {
	dp, ds := g.dp[:len(p)], g.ds[:len(p)]
	dots(dp, do, v.from(), v.stride)
	mean := lanesDot(p, dp)
	for j, x := range p {
		ds[j] = T(x*(dp[j]-mean)) * g.scale
	}
	return ds
}
