package drill

import (
	"fmt"

	"github.com/lockstep-ml/lockstep/kernels"
)

func rmsNormCases(tb *table) {
	f := func(i, r, c int, m mode) {
		eps := []float64{1e-5, 1e-6, 0}[i%3]
		tb.add(fmt.Sprintf("%s_eps%g", shape(r, c, m), eps), r*c,
			func(k kernels.Kernels, t []kernels.Tensor) { k.RMSNorm(t[0], t[1], t[2], t[3], eps) },
			out("y", r, c), out("rstd", 1, r), in("x", r, c, m.fill), in("w", 1, c, m.fill))
	}
	byRows(f)
	tb.byMoreRows(f)
	tb.addLong("long", 577, func(k kernels.Kernels, t []kernels.Tensor) { k.RMSNorm(t[0], t[1], t[2], t[3], 1e-5) },
		out("y", 7, 1040), out("rstd", 7, 1), in("x", 7, 1040, plain), in("w", 1, 1040, plain).fixed())
}

func rmsNormGradCases(tb *table) {
	f := func(i, r, c int, m mode) {
		dx := []operand{out("dx", r, c), same("dx", 1), same("dx", 5), out("dx", r, c)}[i%4]
		res := in("res", r, c, m.fill)
		if i%4 != 2 && i%3 == 0 {
			res = absent("res")
		}
		name := fmt.Sprintf("%s_dx%d_res%t", shape(r, c, m), dx.alias, !res.absent)
		rmsNormGradCase(tb, name, r, c, m, res, dx)
	}
	byRows(f)
	tb.byMoreRows(f)
	// What several threads do, with all residues of the columns among them, and
	// with the gradient in the place of what it is made from.
	for i, c := range []int{1, 2, 7, 8, 9, 15, 16, 17, 23, 30, 31, 32, 33, 47, 48, 49, 55, 63, 64, 66, 97, 1040} {
		r, dx, res := 1<<15/c+1+i%3, []operand{out("dx", 0, 0), same("dx", 1), same("dx", 5)}[i%3], absent("res")
		if i%2 == 0 || i%3 == 2 {
			res = in("res", r, c, plain)
		}
		if dx.alias < 0 {
			dx.rows, dx.cols = r, c
		}
		rmsNormGradCase(tb, fmt.Sprintf("%dx%d_plain_dx%d_res%t", r, c, dx.alias, !res.absent), r, c, mode{"plain", plain}, res, dx)
	}
	// Past the caches.
	for _, last := range []operand{in("res", 7, 1040, plain), absent("res")} {
		tb.addLong(fmt.Sprintf("long_res%t", !last.absent), 385, func(k kernels.Kernels, t []kernels.Tensor) {
			k.RMSNormGrad(t[6], t[0], t[1], t[2], t[3], t[4], t[5])
		}, update("dw", 1, 1040, plain).fixed(), in("dy", 7, 1040, plain), in("x", 7, 1040, plain), in("rstd", 7, 1, positive),
			in("w", 1, 1040, plain).fixed(), last, out("dx", 7, 1040))
	}
}

func rmsNormGradCase(tb *table, name string, r, c int, m mode, res, dx operand) {
	tb.add(name, 4*r*c, func(k kernels.Kernels, t []kernels.Tensor) { k.RMSNormGrad(t[6], t[0], t[1], t[2], t[3], t[4], t[5]) },
		update("dw", 1, c, m.fill), in("dy", r, c, m.fill), in("x", r, c, m.fill),
		in("rstd", 1, r, positive), in("w", 1, c, m.fill), res, dx)
}

func ropeCases(tb *table) {
	ms := modes()
	i := 0
	rope := func(rows, positions, heads, half int) {
		m := ms[i%len(ms)]
		inverse := i%2 == 1
		i++
		tb.add(fmt.Sprintf("rows%d_pos%d_heads%d_half%d_%s_inv%t", rows, positions, heads, half, m.name, inverse), rows*heads*half*2,
			func(k kernels.Kernels, t []kernels.Tensor) { k.Rope(t[0], t[1], t[2], inverse) },
			update("x", rows, 2*half*heads, m.fill), in("cos", positions, half, plain), in("sin", positions, half, m.fill))
	}
	for half := 1; half <= 65; half++ {
		for j, s := range [][3]int{{1, 1, 1}, {7, 3, 2}, {6, 6, 3}, {0, 3, 1}, {4, 9, 1}, {5, 2, 5}} { // rows, positions, heads
			if half <= 9 || half%8 <= 1 || j == half%6 {
				rope(s[0], s[1], s[2], half)
			}
		}
	}
	// Shared between threads: each with both signs.
	for range len(ms) {
		rope(67, 13, 4, 65)
		rope(1031, 33, 1, 16)
	}
	tb.add("noheads", 1, func(k kernels.Kernels, t []kernels.Tensor) { k.Rope(t[0], t[1], t[2], false) },
		update("x", 3, 0, plain), in("cos", 3, 4, plain), in("sin", 3, 4, plain))
}

// headShapes are attention calls: one head, head groups, one key head for all,
// replicated key heads, sizes around lanes and tiles, and nothing.
func headShapes() []kernels.Heads {
	s := []kernels.Heads{
		{Seqs: 0, T: 5, Heads: 2, KVHeads: 1, Dim: 4, KVGroups: 1},
		{Seqs: 2, T: 0, Heads: 2, KVHeads: 2, Dim: 4, KVGroups: 1},
		{Seqs: 1, T: 3, Heads: 2, KVHeads: 1, Dim: 0, KVGroups: 2},
		{Seqs: 1, T: 70, Heads: 1, KVHeads: 1, Dim: 64, KVGroups: 1},
		{Seqs: 1, T: 65, Heads: 4, KVHeads: 1, Dim: 10, KVGroups: 4},
		{Seqs: 1, T: 130, Heads: 1, KVHeads: 1, Dim: 8, KVGroups: 1},
		{Seqs: 2, T: 101, Heads: 2, KVHeads: 1, Dim: 66, KVGroups: 2},
		{Seqs: 1, T: 1031, Heads: 1, KVHeads: 1, Dim: 3, KVGroups: 1}, // more keys than a piece of a chain
		{Seqs: 1, T: 2, Heads: 256, KVHeads: 1, Dim: 1, KVGroups: 256},
		{Seqs: 1, T: 2, Heads: 257, KVHeads: 1, Dim: 1, KVGroups: 257},
		{Seqs: 1, T: 2, Heads: 1024, KVHeads: 1, Dim: 1, KVGroups: 1024},
	}
	ts := []int{1, 2, 3, 5, 8, 16, 17, 31, 32, 33, 34}
	dims := []int{1, 2, 3, 4, 5, 7, 8, 9, 10, 15, 16, 17, 24, 31, 32, 33, 48, 49, 64, 65}
	heads := [][3]int{{1, 1, 1}, {4, 2, 1}, {4, 2, 2}, {4, 1, 4}, {3, 1, 1}, {6, 2, 3}, {8, 1, 8}, {2, 2, 1}, {8, 2, 2}}
	for i, d := range dims {
		for j := range 3 {
			h := heads[(i+4*j)%len(heads)]
			s = append(s, kernels.Heads{Seqs: 1 + (i+j)%3, T: ts[(3*i+5*j)%len(ts)], Heads: h[0], KVHeads: h[1], Dim: d, KVGroups: h[2]})
		}
	}
	// Every number of tokens to past every vector and block of queries, with heads
	// of every width.
	for t := 1; t <= 67; t++ {
		h := heads[t%len(heads)]
		s = append(s, kernels.Heads{Seqs: 1, T: t, Heads: h[0], KVHeads: h[1], Dim: 1 + 11*t%67, KVGroups: h[2]})
	}
	// Every height of a tile with every width of a head, whole vectors or not.
	for d := 8; d <= 64; d += 8 {
		for t := 1; t <= 8; t++ {
			s = append(s, kernels.Heads{Seqs: 1, T: t, Heads: 2, KVHeads: 1, Dim: d, KVGroups: 1 + t%2},
				kernels.Heads{Seqs: 1, T: t, Heads: 2, KVHeads: 1, Dim: d - 1 - (t+d/8)%7, KVGroups: 1})
		}
	}
	for i := range s {
		s[i].Scale = []float64{0.3535533905932738, 1, 0.1}[i%3]
	}
	return s
}

// headLabel names an attention call.
func headLabel(h kernels.Heads, m mode) string {
	return fmt.Sprintf("s%d_t%d_h%d_kv%d_d%d_g%d_%s", h.Seqs, h.T, h.Heads, h.KVHeads, h.Dim, h.KVGroups, m.name)
}

// attentions calls f for every head shape with plain values and, but for the
// largest, one other kind; at level 2 for more widths with every number of tokens.
func (tb *table) attentions(f func(h kernels.Heads, m mode, rows, q, kv int)) {
	ms := modes()
	call := func(h kernels.Heads, m mode) { f(h, m, h.Seqs*h.T, h.Heads*h.Dim, h.KVHeads*h.Dim) }
	for i, h := range headShapes() {
		call(h, ms[0])
		if h.Seqs*h.T*h.T*h.Heads*h.Dim <= 200000 {
			call(h, ms[1+i%(len(ms)-1)])
		}
	}
	tb.atLevel(2, func() {
		for t := 1; t <= 104; t++ {
			for i := range 2 {
				d := []int{1, 15, 16, 31, 48, 63, 64, 66}[(t+3*i)%8]
				call(kernels.Heads{Seqs: 1, T: t, Heads: 2, KVHeads: 1, Dim: d, KVGroups: 1 + t%2, Scale: 0.3}, ms[0])
			}
		}
	})
}

func attentionCases(tb *table) {
	tb.attentions(func(h kernels.Heads, m mode, rows, q, kv int) {
		c := tb.add(headLabel(h, m), 2*rows*h.T*q, func(k kernels.Kernels, t []kernels.Tensor) { k.Attention(t[0], t[1], t[2], t[3], t[4], h) },
			out("o", rows, q), out("p", rows*h.Heads, h.T), in("q", rows, q, m.fill), in("k", rows, kv, m.fill), in("v", rows, kv, m.fill))
		c.ops[1].fill = plain // columns beyond t must stay, which a NaN would hide
	})
}

func attentionGradCases(tb *table) {
	tb.attentions(func(h kernels.Heads, m mode, rows, q, kv int) {
		p := operand{name: "p", role: scratch, rows: rows * h.Heads, cols: h.T, fill: probability, alias: -1}
		tb.add(headLabel(h, m), 4*rows*h.T*q, func(k kernels.Kernels, t []kernels.Tensor) {
			k.AttentionGrad(t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], h)
		}, out("dq", rows, q), out("dk", rows, kv), out("dv", rows, kv), in("do", rows, q, m.fill), p,
			in("q", rows, q, m.fill), in("k", rows, kv, m.fill), in("v", rows, kv, m.fill))
	})
	// Masked columns of p hold anything: here NaN.
	h := kernels.Heads{Seqs: 2, T: 9, Heads: 4, KVHeads: 2, Dim: 5, KVGroups: 2, Scale: 0.5}
	rows := h.Seqs * h.T
	tb.add("masked_nan", 4*rows*h.T*20, func(k kernels.Kernels, t []kernels.Tensor) {
		k.Attention(t[8], t[4], t[5], t[6], t[7], h) // sets the columns 0..t
		k.AttentionGrad(t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], h)
	}, out("dq", rows, 20), out("dk", rows, 10), out("dv", rows, 10), in("do", rows, 20, plain),
		operand{name: "p", role: scratch, rows: rows * 4, cols: 9, fill: func(uint64) float32 { return nan() }, alias: -1},
		in("q", rows, 20, plain), in("k", rows, 10, plain), in("v", rows, 10, plain), out("o", rows, 20))
}
