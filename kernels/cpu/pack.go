package cpu

// stripPanels is the number of panels of k-major A that are packed in one go.
const stripPanels = 32

// panelSize is the room of a packed panel of A: the last 32-byte store of a
// panel runs over its end.
func (r *multiplication) panelSize(k int) int { return roundUp(k*r.high+8, 16) }

// packA packs k-major A for the panels of a strip from row i on: per k the
// values of a panel side by side.
func (r *multiplication) packA(s *step, i int) {
	a, size := &r.term[s.term].a, r.panelSize(s.n)
	first := (i - r.m0) / r.high
	r.packedTo = min(i+stripPanels*r.high, r.m1)
	// 32-byte loads must end inside the rows.
	whole := 0
	if full := r.packedTo - i; full >= 8 {
		whole = min((full-8)/r.high+1, full/r.high)
	}
	if whole > 0 {
		r.ws.marks.add(r.stripped)
		r.strips(ptr(r.ws.a.data, first*size), 4*size, a.at(s.k0, i), 4*a.stride, s.n, whole, 4*r.high)
	}
	for p := whole; i+p*r.high < r.packedTo; p++ {
		lo := i + p*r.high
		rows := min(r.high, r.packedTo-lo)
		dst := r.ws.a.data[(first+p)*size:]
		for k := range s.n {
			from := a.data[(s.k0+k)*a.stride+lo:]
			for x := range rows {
				dst[k*rows+x] = from[x]
			}
		}
	}
}

// packB packs columns [jc, jc+w) of B for one step: panel after panel of the
// tile's width, in which each k has its columns side by side. The last panel is
// as narrow as its tiles.
func (r *multiplication) packB(s *step, jc, w int) {
	if s.n == 0 {
		return
	}
	dst := r.ws.b.data[s.pack*r.nc:]
	b := &r.term[s.term].b
	done := 0
	if f := r.panels[r.vectors]; f != nil && r.layout != nt {
		const group = 4
		for np := w / r.wide; done < np; {
			n := min(group, np-done)
			r.ws.marks.add(r.panelled[r.vectors])
			f(ptr(dst, done*r.wide*s.n), 4*r.wide*s.n, b.at(s.k0, jc+done*r.wide), 4*b.stride, s.n, n)
			done += n
		}
	}
	for j := done * r.wide; j < w; j += r.wide {
		cols := min(r.wide, w-j)
		ld := roundUp(cols, r.lanes)
		if r.layout == nt {
			r.isa.packRows(r.ws, dst[j*s.n:], ld, b, jc+j, cols, s.k0, s.n)
			continue
		}
		for k := range s.n {
			at := (s.k0+k)*b.stride + jc + j
			copy(dst[j*s.n+k*ld:], b.data[at:at+cols])
		}
	}
}

// packRows turns columns [k0, k0+n) of rows [j, j+cols) of b into dst: element
// (k, row) at dst[k*ld+row].
func (s *isa) packRows(ws *workspace, dst []float32, ld int, b *view, j, cols, k0, n int) {
	whole := n - n%s.lanes
	for c := 0; c < cols; c += s.lanes {
		from := 0
		if c+s.lanes <= cols && whole > 0 {
			ws.marks.add(s.transposes)
			s.transpose(ptr(dst, c), 4*ld, b.at(j+c, k0), 4*b.stride, whole)
			from = whole
		}
		for x := c; x < min(c+s.lanes, cols); x++ {
			row := b.data[(j+x)*b.stride+k0:]
			for k := from; k < n; k++ {
				dst[k*ld+x] = row[k]
			}
		}
	}
}
