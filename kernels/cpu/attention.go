package cpu

import "github.com/lockstep-ml/lockstep/kernels"

// Legend: T tokens of a sequence, D head dimension; i, t queries, j keys.

// queryBlock is how many queries are taken at once: a multiple of the rows of
// every tile, small enough that their scores stay in the second cache.
const queryBlock = 48

// longestRun is the longest piece of a chain over keys that one call of
// assembly runs.
const longestRun = 1024

// attention is one thread's work on one head.
type attention struct {
	*isa
	ws          *workspace
	h           kernels.Heads
	scale       float32
	vectors     int       // of the widest tiles
	wide        int       // columns of the widest tiles
	transposed  []float32 // keys or values as columns, panel after panel
	scores, ds  []float32 // one block of queries; rows of ld
	ld          int
	q, k, v, do view // one head each: T x D
	p           view // T x T
}

// hasAttention reports whether there is anything to do for which the tiles are
// made.
func (b *Backend) hasAttention(h kernels.Heads) bool {
	return b.isa != nil && h.Seqs > 0 && h.T > 0 && h.Dim > 0 && h.Heads > 0 && h.KVGroups <= maxGroups
}

// Attention implements kernels.Kernels: parts are heads.
func (b *Backend) Attention(o, p, q, k, v kernels.Tensor, h kernels.Heads) {
	if !b.hasAttention(h) {
		b.Backend.Attention(o, p, q, k, v, h)
		return
	}
	kernels.CheckAttention(o, p, q, k, v, h)
	c := b.newCall(attentionPart, pathAttention, noPath)
	c.x = [8]view{viewOf(p), viewOf(q), viewOf(k), viewOf(v), viewOf(o)}
	c.heads = h
	b.dispatch(c, h.Seqs*h.Heads)
}

// head is head i of n in sequence seq.
func head(x *view, h *kernels.Heads, n, seq, i int) view {
	stride := n * h.Dim
	return view{x.data[seq*h.T*stride+i*h.Dim:], h.T, h.Dim, stride}
}

// newAttention sets up the thread's scratch: the transposed operand and blocks
// of scores.
func newAttention(c *call, ws *workspace, blocks int) attention {
	a := attention{isa: c.b.isa, ws: ws, h: c.heads, scale: float32(c.heads.Scale)}
	a.vectors = a.rowsWide
	a.wide = a.vectors * a.lanes
	a.transposed = ws.b.take(roundUp(a.h.T, a.wide) * a.h.Dim)
	a.ld = roundUp(a.h.T, a.wide) + 16
	room := ws.a.take(blocks * queryBlock * a.ld)
	a.scores, a.ds = room[:queryBlock*a.ld], room[(blocks-1)*queryBlock*a.ld:]
	return a
}

// bind selects the probabilities and operands of query head i.
func (a *attention) bind(c *call, seq, i int) {
	h, key := &a.h, i/(a.h.Heads/a.h.KVHeads)
	a.p = view{c.x[0].data[(seq*h.Heads+i)*h.T*h.T:], h.T, h.T, h.T}
	a.q = head(&c.x[1], h, h.Heads, seq, i)
	a.k, a.v = head(&c.x[2], h, h.KVHeads, seq, key), head(&c.x[3], h, h.KVHeads, seq, key)
}

func attentionPart(c *call, ws *workspace, part int) {
	a := newAttention(c, ws, 1)
	seq, i := part/a.h.Heads, part%a.h.Heads
	a.bind(c, seq, i)
	o := head(&c.x[4], &a.h, a.h.Heads, seq, i)
	a.transposeKeys(&a.k)
	for b0 := 0; b0 < a.h.T; b0 += queryBlock {
		b1 := min(b0+queryBlock, a.h.T)
		a.products(&a.q, b0, b1)
		for t := b0; t < b1; t++ {
			a.softmax(t, a.scores[(t-b0)*a.ld:])
		}
		a.attend(&o, &a.p, 0, &a.v, b0, b1)
	}
}

// transposeKeys packs x, T x D, as columns.
func (a *attention) transposeKeys(x *view) {
	d := a.h.Dim
	for j := 0; j < a.h.T; j += a.wide {
		a.packRows(a.ws, a.transposed[j*d:], a.wide, x, j, min(a.wide, a.h.T-j), 0, d)
	}
}

// products writes x_t times the transposed operand to the scores of queries
// [b0, b1): for the keys up to each tile's last query; what lies beyond a
// query's own key is not used.
func (a *attention) products(x *view, b0, b1 int) {
	t := &a.ws.tile
	high := a.rowsMost[a.vectors]
	t.k, t.lda, t.ldb, t.ldc = a.h.Dim, 4*x.stride, 4*a.wide, 4*a.ld
	t.in, t.merges, t.triangle = nil, 0, 0
	for i := b0; i < b1; i += high {
		rows := min(high, b1-i)
		t.a = x.at(i, 0)
		for j := 0; j < i+rows; j += a.wide {
			vectors := (min(a.wide, i+rows-j) + a.lanes - 1) / a.lanes
			t.b = ptr(a.transposed, j*a.h.Dim)
			t.c = ptr(a.scores, (i-b0)*a.ld+j)
			t.next, t.ahead = t.a, t.c
			a.run(a.rows[vectors][rows][0])
		}
	}
}

// run calls a tile. It is a function of its own, with a frame, so that the
// scheduler can stop the goroutine between calls.
//
//go:noinline
func (a *attention) run(f routine) {
	a.ws.marks.add(f.number)
	a.ws.tile.call(f.f)
}

// softmax turns the products of query t into its probabilities. Unlike in
// LogitsMax the sign of a maximum of zero does not matter: exp(-0) = exp(+0).
func (a *attention) softmax(t int, s []float32) {
	ws, n := a.ws, t+1
	p := a.p.at(t, 0)
	ws.vec.s[0] = a.scale
	ws.vec.s[0] = ws.rowOf(a.scaleMax, n, &s[0])
	ws.vec.s[0] = ws.rowOf(a.expSum, n, p, &s[0])
	ws.rowOf(a.divide, n, p)
}

// attend writes the chains over keys j <= t of (w[t-w0][j], x[j]) to out, for
// queries t in [b0, b1).
func (a *attention) attend(out, w *view, w0 int, x *view, b0, b1 int) {
	t := &a.ws.tile
	high := a.rowsMost[a.vectors]
	t.lda, t.ldb, t.ldc, t.ldin = 4*w.stride, 4*x.stride, 4*out.stride, 4*out.stride
	t.merges = 0
	for i := b0; i < b1; i += high {
		rows := min(high, b1-i)
		for d := 0; d < a.h.Dim; d += a.wide {
			f := a.columns(&a.rows, d, rows)
			t.c, t.in = out.at(i, d), nil
			for j := 0; j <= i; j += longestRun {
				t.k, t.triangle = min(longestRun, i+1-j), 0
				if j+longestRun > i {
					t.triangle = 1
				}
				t.a, t.b = w.at(i-w0, j), x.at(j, d)
				t.next, t.ahead = t.a, t.c
				a.run(f)
				t.in = t.c
			}
		}
	}
}

// columns is the tile for the columns of a head from d on.
func (a *attention) columns(table *[5][9][2]routine, d, rows int) routine {
	width, masked := min(a.wide, a.h.Dim-d), 0
	if rest := width % a.lanes; rest != 0 {
		a.ws.tile.setMask(a.lanes, rest)
		masked = 1
	}
	return table[(width+a.lanes-1)/a.lanes][rows][masked]
}
