package cpu

import (
	"math/bits"

	"github.com/lockstep-ml/lockstep/kernels"
)

// AttentionGrad implements kernels.Kernels: parts are key heads. p is left as
// it is.
func (b *Backend) AttentionGrad(dq, dk, dv, do, p, q, k, v kernels.Tensor, h kernels.Heads) {
	if !b.hasAttention(h) {
		b.Backend.AttentionGrad(dq, dk, dv, do, p, q, k, v, h)
		return
	}
	kernels.CheckAttentionGrad(dq, dk, dv, do, p, q, k, v, h)
	c := b.newCall(attentionGradPart, pathAttentionGrad, noPath)
	c.x = [8]view{viewOf(p), viewOf(q), viewOf(k), viewOf(v), viewOf(do), viewOf(dq), viewOf(dk), viewOf(dv)}
	c.heads = h
	b.dispatch(c, h.Seqs*h.KVHeads)
}

// attentionGradPart computes the gradients of one key head and its queries. The
// sums of its groups are added in the order of tree(), on a stack whose bottom
// is the result.
func attentionGradPart(c *call, ws *workspace, part int) {
	a := newAttention(c, ws, 2)
	h := &a.h
	seq, key := part/h.KVHeads, part%h.KVHeads
	a.v = head(&c.x[3], h, h.KVHeads, seq, key)
	a.transposeKeys(&a.v)
	keys, values := a.stack(head(&c.x[6], h, h.KVHeads, seq, key), 0), a.stack(head(&c.x[7], h, h.KVHeads, seq, key), 1)
	share := h.Heads / h.KVHeads
	size := share / h.KVGroups
	for group := range h.KVGroups {
		for n := range size {
			i := key*share + group*size + n
			a.bind(c, seq, i)
			a.do = head(&c.x[4], h, h.Heads, seq, i)
			dq := head(&c.x[5], h, h.Heads, seq, i)
			a.queryHead(&dq, keys.next(), values.next(), n == 0)
		}
		keys.push(&a)
		values.push(&a)
	}
	keys.finish(&a)
	values.finish(&a)
}

// queryHead writes the gradient of one head's queries, and continues those of
// its keys and values; first starts them from +0.
func (a *attention) queryHead(dq, dk, dv *view, first bool) {
	ds := view{a.ds, queryBlock, a.h.T, a.ld}
	for b0 := 0; b0 < a.h.T; b0 += queryBlock {
		b1 := min(b0+queryBlock, a.h.T)
		a.products(&a.do, b0, b1)
		for t := b0; t < b1; t++ {
			a.softmaxGrad(t, a.scores[(t-b0)*a.ld:], a.ds[(t-b0)*a.ld:])
		}
		a.attend(dq, &ds, b0, &a.k, b0, b1)
		a.accumulate(dk, &ds, b0, &a.q, b0, b1, first)
		a.accumulate(dv, &a.p, 0, &a.do, b0, b1, first)
	}
}

func (a *attention) softmaxGrad(t int, dp, ds []float32) {
	ws, n := a.ws, t+1
	p := a.p.at(t, 0)
	mean := ws.rowOf(a.lanesDot, n, p, &dp[0])
	ws.vec.s[0], ws.vec.s[1] = mean, a.scale
	ws.rowOf(a.isa.softmaxGrad, n, &ds[0], p, &dp[0])
}

// accumulate continues the chains over queries t >= j of (w[t-w0][j], x[t]) in
// out[j], by the queries t in [b0, b1).
func (a *attention) accumulate(out, w *view, w0 int, x *view, b0, b1 int, first bool) {
	t := &a.ws.tile
	vectors := min(a.vectors, (a.h.Dim+a.lanes-1)/a.lanes)
	high := a.colsMost[vectors]
	t.lda, t.ldb, t.ldc, t.ldin = 4*w.stride, 4*x.stride, 4*out.stride, 4*out.stride
	t.merges = 0
	for j := 0; j < b1; j += high {
		rows, from := high, b0
		t.k, t.triangle = b1-b0, 0
		if j >= b0 { // on the diagonal: the first query that sees key j is j
			rows, from = min(high, b1-j), j
			t.k, t.triangle = b1-j-rows, 1
		}
		for d := 0; d < a.h.Dim; d += a.wide {
			f := a.columns(&a.cols, d, rows)
			t.a, t.b, t.c = w.at(from-w0, j), x.at(from, d), out.at(j, d)
			t.next, t.ahead, t.in = t.a, t.c, t.c
			if first && t.triangle == 1 {
				t.in = nil
			}
			a.run(f)
		}
	}
}

// stack holds the sums of groups, T x D each, of one gradient.
type stack struct {
	rows        [maxMerges + 2]view
	leaves, top int
}

// stack makes the levels above the result; which tells keys from values.
func (a *attention) stack(bottom view, which int) stack {
	s := stack{}
	s.rows[0] = bottom
	above := bits.Len(uint(a.h.KVGroups)) - 1
	n := a.h.T * a.h.Dim
	room := a.ws.c.take(2 * above * n)[which*above*n:]
	for i := range above {
		s.rows[i+1] = view{room[i*n:], a.h.T, a.h.Dim, a.h.Dim}
	}
	return s
}

func (s *stack) next() *view { return &s.rows[s.top] }

func (s *stack) push(a *attention) {
	s.leaves++
	s.top++
	for n := s.leaves; n&1 == 0; n >>= 1 {
		s.merge(a)
	}
}

func (s *stack) finish(a *attention) {
	for s.top > 1 {
		s.merge(a)
	}
}

// merge adds the upper of the two sums on top to the lower.
func (s *stack) merge(a *attention) {
	s.top--
	to, from := &s.rows[s.top-1], &s.rows[s.top]
	for t := range a.h.T {
		a.ws.rowOf(a.add, a.h.Dim, to.at(t, 0), to.at(t, 0), from.at(t, 0))
	}
}
