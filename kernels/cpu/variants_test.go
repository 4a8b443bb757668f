package cpu

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/lockstep-ml/lockstep/kernels/drill"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// variant is a way through the code of a tile.
type variant int

const (
	fresh     variant = iota // from +0
	continued                // from stored sums
	merged                   // with finished sums added
	triangle                 // with steps that only some rows take
	tail                     // with a number of steps that is no multiple of four
	variants
)

// has reports which ways a call takes.
func (v variant) has(a *tileArgs) bool {
	switch v {
	case fresh:
		return a.in == nil
	case continued:
		return a.in != nil
	case merged:
		return a.merges > 0
	case triangle:
		return a.triangle != 0
	}
	return a.k > 4 && a.k%4 != 0
}

// impossible reports what no kernel asks of a tile: k-major A has no groups, and
// its masked tiles that are wider than those of products, and lower than the
// highest, take the last keys alone, which all their steps are on the diagonal.
func impossible(s *isa, kind, vectors, rows, masked int, w variant) bool {
	if kind == 0 {
		return false
	}
	return w == merged || w == tail && vectors > s.colsWide && masked == 1 && rows < s.colsMost[vectors]
}

// TestDrillRunsEveryTileInEveryWay: the cases of level 1 start every tile from +0
// and from stored sums, with steps left over, add finished sums where A is
// row-major, and run every tile on the diagonal.
func TestDrillRunsEveryTileInEveryWay(t *testing.T) {
	cases := drill.Cases(drill.Options{Level: 1, Only: []string{"MatMulNT", "MatMulNN", "MatMulTN", "Attention", "AttentionGrad"}})
	for _, s := range detect() {
		b, err := New(Options{ISA: s.name, Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		var calls [2][5][9][2][variants]atomic.Int64
		own := *s
		for kind, table := range []*[5][9][2]routine{&own.rows, &own.cols} {
			for v := range table {
				for r := range table[v] {
					for m := range table[v][r] {
						f := table[v][r][m].f
						if f == nil {
							continue
						}
						table[v][r][m].f = func(p *byte) {
							for w := range variants {
								if w.has((*tileArgs)(unsafe.Pointer(p))) {
									calls[kind][v][r][m][w].Add(1)
								}
							}
							f(p)
						}
					}
				}
			}
		}
		b.isa = &own
		if err := drill.Run(t.Context(), b, ref.New[float32](), cases, func(r drill.Result) {
			if r.Difference != nil {
				t.Errorf("%s: %s %s: %s", s.name, r.Case.Kernel, r.Case.Name, r.Difference)
			}
		}); err != nil {
			t.Fatal(err)
		}
		var missing []string
		for kind, table := range []*[5][9][2]routine{&s.rows, &s.cols} {
			for v := range table {
				for r := range table[v] {
					for m, f := range table[v][r] {
						for w := range variants {
							if f.f != nil && !impossible(s, kind, v, r, m, w) && calls[kind][v][r][m][w].Load() == 0 {
								missing = append(missing, fmt.Sprintf("%s %s", s.routines[f.number], []string{"fresh", "continued", "merged", "triangle", "tail"}[w]))
							}
						}
					}
				}
			}
		}
		if len(missing) > 0 {
			t.Errorf("%s: never ran: %s", s.name, strings.Join(missing, ", "))
		}
	}
}
