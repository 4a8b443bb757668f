package cpu

import (
	"sync/atomic"
	"unsafe"
)

// Tally counts what the register tiles of matrix products and of attention were
// asked to do, in all backends opened with it. A result that is right proves
// little about paths that never ran; a tally says which did. Plain Go has no
// tiles and counts nothing.
type Tally struct {
	// Full are tiles of the greatest height and width that products use, without
	// a mask; Edge are all others.
	Full, Edge atomic.Int64
	// Merged are tiles whose sum was added to that of other groups in registers.
	Merged atomic.Int64
	// Long are pieces of chains, of one thread's part of a product, that go on
	// where a piece before them ended: the chain is longer than a block of k.
	Long atomic.Int64
}

// watch is s with tiles that count before they run.
func (t *Tally) watch(s *isa) *isa {
	own := *s
	own.tally = t
	t.watchTiles(&own.rows, s.rowsWide, s.rowsMost[s.rowsWide])
	t.watchTiles(&own.cols, s.colsWide, s.colsMost[s.colsWide])
	return &own
}

// watchTiles wraps the tiles of a table; high x wide is the greatest one.
func (t *Tally) watchTiles(table *[5][9][2]routine, wide, high int) {
	for v := range table {
		for r := range table[v] {
			for masked := range table[v][r] {
				f := table[v][r][masked].f
				if f == nil {
					continue
				}
				shape := &t.Edge
				if v == wide && r == high && masked == 0 {
					shape = &t.Full
				}
				table[v][r][masked].f = func(p *byte) {
					shape.Add(1)
					if (*tileArgs)(unsafe.Pointer(p)).merges > 0 {
						t.Merged.Add(1)
					}
					f(p)
				}
			}
		}
	}
}

// longPieces is how many steps of a plan go on where the piece of a chain before
// them ended.
func longPieces(steps []step) (n int) {
	for i := 1; i < len(steps); i++ {
		s, before := &steps[i], &steps[i-1]
		if s.load >= 0 && s.term == before.term && s.k0 == before.k0+before.n {
			n++
		}
	}
	return n
}
