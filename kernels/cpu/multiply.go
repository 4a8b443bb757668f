package cpu

// multiplication is the part of a product that one thread computes: rows
// [m0, m1) and columns [n0, n1) of C.
type multiplication struct {
	*isa
	*product
	ws             *workspace
	m0, m1, n0, n1 int

	vectors, wide, high int // the tile: vectors, columns, rows
	cuts, nc            int // blocks of columns whose B is packed at once, and the widest one
	packed              bool
	sums                []float32 // levels of the stack from 1 on
	ldSums, level       int       // stride of a row and size of a level in them; 0, or one tile's if they outlive no tile
	whole               bool      // the chains of a tile run to their end at once

	packedTo int // rows before it have their A packed (tn)
}

// blockN is the most columns of B that are packed at once.
const blockN = 384

// directRows is for how few rows of C B is read where it lies, not packed.
const directRows = 12

// packedRows is about how many rows of k-major A are packed at once: packed, a
// block of them stays in the third cache while blocks of B pass.
const packedRows = 1536

// run computes the part: for each block of columns and of k, B is packed, and
// the panels of A pass over it.
func (r *multiplication) run() {
	n := r.n1 - r.n0
	r.vectors, r.high = r.shape(r.layout, n)
	r.wide = r.vectors * r.lanes
	r.cuts = (n + blockN - 1) / blockN
	r.nc = ((n+r.wide-1)/r.wide + r.cuts - 1) / r.cuts * r.wide
	r.packed = r.layout == nt || r.m1-r.m0 > directRows && r.longRows()
	p := planner{steps: r.ws.steps[:0]}
	if r.layout == tn {
		p.chain(0, 0, r.term[0].k, 0)
	} else {
		p.grouped(r.product)
	}
	r.ws.steps = p.steps
	r.count(p.steps)
	count, longest := p.blocks()
	r.reserve(p.levels-1, count, longest)
	if r.layout == tn {
		r.accumulate(p.steps)
		return
	}
	for cut := range r.cuts {
		for at := 0; at < len(p.steps); {
			end := at
			for !p.steps[end].last {
				end++
			}
			end++
			r.block(p.steps[at:end], cut)
			at = end
		}
	}
}

// count counts the ways that this part takes.
func (r *multiplication) count(steps []step) {
	m := &r.ws.marks
	if long := longPieces(steps); long > 0 {
		m.path(pathLong)
		if r.tally != nil {
			r.tally.Long.Add(int64(long))
		}
	}
	if r.packed {
		m.path(pathPacked)
	} else {
		m.path(pathDirect)
	}
	if r.cuts > 1 {
		m.path(pathBlocks)
	}
	if r.layout == tn && r.m1-r.m0 > r.rowsPacked() {
		m.path(pathLayers)
	}
}

// accumulate runs the steps of a tn product. All columns pass over a block of
// A, so that it is packed once.
func (r *multiplication) accumulate(steps []step) {
	m1 := r.m1
	size := r.rowsPacked()
	for ; r.m0 < m1; r.m0 = r.m1 {
		r.m1 = min(r.m0+size, m1)
		for s := range steps {
			r.packedTo = r.m0
			for cut := range r.cuts {
				r.block(steps[s:s+1], cut)
			}
		}
	}
}

// rowsPacked is the most rows of A that are packed at once: evenly cut.
func (r *multiplication) rowsPacked() int {
	m := r.m1 - r.m0
	parts := (m + packedRows - 1) / packedRows
	return roundUp((m+parts-1)/parts, r.high)
}

// longRows reports whether B has rows so long that no block of it sits well in
// the caches as it is.
func (r *multiplication) longRows() bool {
	for i := range r.terms {
		if r.term[i].b.stride > r.directStride {
			return true
		}
	}
	return false
}

// reserve sizes the buffers for packed operands and for levels of sums. Where
// all k fit one block, the levels of a tile are forgotten with the tile.
func (r *multiplication) reserve(levels, blocks, longest int) {
	if r.packed {
		r.ws.b.take(r.nc * longest)
	}
	if r.layout == tn {
		r.ws.a.take((r.rowsPacked() + r.high - 1) / r.high * r.panelSize(longest))
	}
	r.whole = blocks == 1
	r.ldSums, r.level = r.wide, r.high*r.wide
	if !r.whole {
		r.ldSums, r.level = r.nc, (r.m1-r.m0)*r.nc
	}
	if levels > 0 {
		r.sums = r.ws.c.take(levels * r.level)
	}
}

// block runs steps whose B fits the buffer over one of the blocks of columns,
// which are cut evenly in tiles.
func (r *multiplication) block(steps []step, cut int) {
	tiles := (r.n1 - r.n0 + r.wide - 1) / r.wide
	jc := r.n0 + cut*tiles/r.cuts*r.wide
	w := min(r.n0+(cut+1)*tiles/r.cuts*r.wide, r.n1) - jc
	if r.packed {
		for i := range steps {
			r.packB(&steps[i], jc, w)
		}
	}
	for i := r.m0; i < r.m1; i += r.high {
		r.panel(steps, i, jc, w)
	}
}

// panel computes the tiles of one panel of rows. It is a function of its own,
// with a frame, so that the scheduler can stop the goroutine between panels.
//
//go:noinline
func (r *multiplication) panel(steps []step, i, jc, w int) {
	rows := min(r.high, r.m1-i)
	if r.layout == tn && i >= r.packedTo {
		r.packA(&steps[0], i)
	}
	for j := 0; j < w; j += r.wide {
		width := min(r.wide, w-j)
		vectors, masked := (width+r.lanes-1)/r.lanes, 0
		if rest := width % r.lanes; rest != 0 {
			r.ws.tile.setMask(r.lanes, rest)
			masked = 1
		}
		table := &r.rows
		if r.layout == tn {
			table = &r.cols
		}
		f := table[vectors][rows][masked]
		for s := range steps {
			r.tile(&steps[s], i, jc, j, w, vectors)
			r.ws.marks.add(f.number)
			r.ws.tile.call(f.f)
		}
	}
}

// tile sets the arguments of one step of the tile at row i and column jc+j.
func (r *multiplication) tile(s *step, i, jc, j, w, vectors int) {
	t := &r.ws.tile
	t.k, t.triangle = s.n, 0
	if s.n > 0 {
		r.setA(s, i, j/r.wide)
		r.setB(s, jc, j, w, vectors)
	}
	t.c, t.ldc = r.sum(s.store, i, jc, j)
	t.ahead = t.c
	if j+r.wide < w {
		t.ahead, _ = r.sum(s.store, i, jc, j+r.wide)
	} else if i+r.high < r.m1 {
		t.ahead, _ = r.sum(s.store, i+r.high, jc, 0)
	}
	t.in = nil
	if s.load >= 0 {
		t.in, t.ldin = r.sum(s.load, i, jc, j)
	}
	t.merges = s.merges
	for m := range s.merges {
		t.merge[m].p, t.merge[m].ld = r.sum(s.store+s.merges-1-m, i, jc, j)
	}
}

// setA points to A, and to the row of the next panel that this tile fetches.
func (r *multiplication) setA(s *step, i, tile int) {
	t, a := &r.ws.tile, &r.term[s.term].a
	if r.layout == tn {
		size := r.panelSize(s.n)
		at := (i - r.m0) / r.high * size
		rows := min(r.high, r.m1-i)
		t.a, t.lda = ptr(r.ws.a.data, at), 4*rows
		t.next = t.a
		if i+r.high < r.packedTo {
			t.next = ptr(r.ws.a.data, at+size)
		}
		return
	}
	t.a, t.lda = a.at(i, s.k0), 4*a.stride
	t.next = t.a
	if next := i + r.high + tile; tile < r.high && next < r.m1 {
		t.next = a.at(next, s.k0)
	}
}

// setB points to B, packed or where it lies.
func (r *multiplication) setB(s *step, jc, j, w, vectors int) {
	t := &r.ws.tile
	if !r.packed {
		b := &r.term[s.term].b
		t.b, t.ldb = b.at(s.k0, jc+j), 4*b.stride
		return
	}
	t.b = ptr(r.ws.b.data, s.pack*r.nc+j*s.n)
	t.ldb = 4 * vectors * r.lanes
}

// sum is where a level of the stack holds the tile.
func (r *multiplication) sum(level, i, jc, j int) (*float32, int) {
	if level == 0 {
		return r.c.at(i, jc+j), 4 * r.c.stride
	}
	at := (level - 1) * r.level
	if !r.whole {
		at += (i-r.m0)*r.nc + j
	}
	return ptr(r.sums, at), 4 * r.ldSums
}
