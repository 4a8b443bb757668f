package cpu

import (
	"math/rand/v2"
	"testing"

	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// TestTally: a tally counts exactly what a product needs, and the bits stay
// those of package ref.
func TestTally(t *testing.T) {
	for _, s := range detect() {
		wide, high := s.rowsWide*s.lanes, s.rowsMost[s.rowsWide]
		wideTN, highTN := s.colsWide*s.lanes, s.colsMost[s.colsWide]
		for _, c := range []struct {
			name                     string
			l                        layout
			m, n, k, groups          int
			full, edge, long, merged int64
		}{
			{"full tiles only", nt, 2 * high, 3 * wide, 5, 1, 6, 0, 0, 0},
			{"one row and one column more", nt, 2*high + 1, wide + 1, 5, 1, 2, 4, 0, 0},
			{"one k more than a block", nt, high, wide, blockK + 1, 1, 2, 0, 1, 0},
			{"exactly a block", nt, high, wide, blockK, 1, 1, 0, 0, 0},
			{"groups of a block each are not long", nt, high, wide, 2 * blockK, 2, 2, 0, 0, 1},
			{"long groups", nt, high, wide, 2 * (blockK + 1), 2, 4, 0, 2, 1},
			{"a sum that continues from its buffer is not long", tn, highTN, wideTN, 5, 1, 1, 0, 0, 0},
			{"nothing", nt, 0, wide, 5, 1, 0, 0, 0, 0},
		} {
			var n Tally
			b, err := New(Options{ISA: s.name, Threads: 1, Tally: &n})
			if err != nil {
				t.Fatal(err)
			}
			p := &pair{t: t, b: b, ref: ref.New[float32](), r: rand.New(rand.NewPCG(3, 7))}
			p.product(c.l, c.m, c.n, c.k, c.groups)
			got := [4]int64{n.Full.Load(), n.Edge.Load(), n.Long.Load(), n.Merged.Load()}
			if want := [4]int64{c.full, c.edge, c.long, c.merged}; got != want {
				t.Errorf("%s, %s: full, edge, long, merged %v, want %v", s.name, c.name, got, want)
			}
		}
	}
}
