package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// counter counts what tiles are asked to do.
type counter struct {
	calls     [2][5][9][2]atomic.Int64 // rows or cols, vectors, rows, masked
	continued atomic.Int64             // pieces that continue a chain
	merged    atomic.Int64             // pieces that add finished sums
	triangles atomic.Int64
	empty     atomic.Int64 // chains without any k
}

// counted is a backend of the instruction set s whose tiles are counted.
func counted(t *testing.T, s *isa, threads int) (*Backend, *counter) {
	t.Helper()
	b, err := New(Options{ISA: s.name, Threads: threads})
	if err != nil {
		t.Fatal(err)
	}
	n, own := &counter{}, *s
	for kind, table := range []*[5][9][2]routine{&own.rows, &own.cols} {
		for v := range table {
			for r := range table[v] {
				for m := range table[v][r] {
					f := table[v][r][m].f
					if f == nil {
						continue
					}
					table[v][r][m].f = func(p *byte) {
						n.calls[kind][v][r][m].Add(1)
						n.look((*tileArgs)(unsafe.Pointer(p)))
						f(p)
					}
				}
			}
		}
	}
	b.isa = &own
	return b, n
}

func (n *counter) look(a *tileArgs) {
	for _, c := range []struct {
		is bool
		n  *atomic.Int64
	}{{a.in != nil, &n.continued}, {a.merges > 0, &n.merged}, {a.triangle != 0, &n.triangles}, {a.k == 0, &n.empty}} {
		if c.is {
			c.n.Add(1)
		}
	}
}

// unused lists the tiles of s that were never called.
func (n *counter) unused(s *isa) (names []string) {
	for kind, table := range []*[5][9][2]routine{&s.rows, &s.cols} {
		for v := range table {
			for r := range table[v] {
				for m, f := range table[v][r] {
					if f.f != nil && n.calls[kind][v][r][m].Load() == 0 {
						names = append(names, fmt.Sprintf("%s %dx%d masked %d", []string{"rows", "cols"}[kind], r, v, m))
					}
				}
			}
		}
	}
	return names
}

// products runs shapes at which every tile is used: all numbers of rows below
// two tiles, widths that are whole vectors and such that are not, and chains
// of several blocks.
func (p *pair) products() {
	lanes := p.b.isa.lanes
	for _, l := range []layout{nn, nt, tn} {
		for m := 1; m <= 13; m++ {
			for v := 1; v <= 6; v++ {
				p.product(l, m, v*lanes, p.r.IntN(40), 1+p.r.IntN(9))
				p.product(l, m, v*lanes-1-p.r.IntN(lanes-1), p.r.IntN(40), 1+p.r.IntN(9))
			}
		}
		for _, k := range []int{blockK, blockK + 1, 2*blockK + 5, 4*blockK + 3} {
			for range 2 {
				p.product(l, 1+p.r.IntN(30), 1+p.r.IntN(70), k, 1<<p.r.IntN(4))
			}
		}
		p.product(l, 70, 2*blockN+3, 70, 2) // several blocks of columns
	}
	// Several strips of k-major A, with several blocks of columns and of k; several
	// chunks of rows.
	p.product(tn, 8*stripPanels+9, blockN+1, blockK+1, 1)
	p.product(tn, packedRows+9, blockN+1, 7, 1)
	p.product(tn, packedRows+9, 3, blockK+1, 1)
}

// attentions does the same for heads: widths of all kinds, lengths about a
// block of queries, and more keys than one run.
func (p *pair) attentions() {
	for _, d := range []int{1, 15, 16, 17, 40, 60, 64, 70} {
		for t := queryBlock - 9; t < queryBlock; t++ {
			p.attention(kernels.Heads{Seqs: 1, T: t, Heads: 2, KVHeads: 1, Dim: d, KVGroups: 1 + p.r.IntN(2), Scale: 0.3})
		}
	}
	p.attention(kernels.Heads{Seqs: 2, T: 2*queryBlock + 5, Heads: 4, KVHeads: 2, Dim: 8, KVGroups: 2, Scale: 0.3})
	p.attention(kernels.Heads{Seqs: 1, T: longestRun + 40, Heads: 1, KVHeads: 1, Dim: 3, KVGroups: 1, Scale: 0.5})
}

// TestEveryTile: every tile of every instruction set gives the bits of package
// ref, and every one has run, as have continued chains, merged sums, triangles
// and chains without any k.
func TestEveryTile(t *testing.T) {
	for _, s := range detect() {
		b, n := counted(t, s, 1)
		p := &pair{t: t, b: b, ref: ref.New[float32](), r: rand.New(rand.NewPCG(1, 7))}
		p.products()
		p.attentions()
		if names := n.unused(s); len(names) > 0 {
			t.Errorf("%s: never ran: %s", s.name, strings.Join(names, ", "))
		}
		for i, c := range []*atomic.Int64{&n.continued, &n.merged, &n.triangles, &n.empty} {
			if c.Load() == 0 {
				t.Errorf("%s: no %s", s.name, []string{"continued chain", "merged sum", "triangle", "empty chain"}[i])
			}
		}
	}
}

// TestThreads: products large enough to be shared have the same bits for every
// number of threads, by columns and by rows, and skinny ones too.
func TestThreads(t *testing.T) {
	for _, s := range detect() {
		for _, threads := range []int{2, 3, 5} {
			b, err := New(Options{ISA: s.name, Threads: threads})
			if err != nil {
				t.Fatal(err)
			}
			p := &pair{t: t, b: b, ref: ref.New[float32](), r: rand.New(rand.NewPCG(uint64(threads), 7))}
			for _, l := range []layout{nn, nt, tn} {
				p.product(l, 3, 1201, 601, 4)
				p.product(l, 1201, 3, 601, 4)
				p.product(l, 131, 157, 131, 2)
			}
		}
	}
}

// TestPlan: the pieces of a plan cover every k of every group once and in
// order, none longer than a block, and the stack ends with one sum in C.
func TestPlan(t *testing.T) {
	for _, k := range []int{0, 1, 5, blockK, blockK + 1, 3*blockK + 7} {
		for groups := 1; groups <= 20; groups++ {
			x := &product{terms: 2, groups: groups}
			x.term[0] = term{k: k, bounds: shard.Bounds(k, groups)}
			x.term[1] = term{k: k / 2, bounds: shard.Bounds(k/2, groups)}
			var p planner
			p.grouped(x)
			p.blocks()
			at := [2]int{}
			for i, s := range p.steps {
				if s.n > blockK || s.n > 0 && s.k0 != at[s.term] {
					t.Fatalf("k %d, groups %d: step %d is %+v, want k0 %d", k, groups, i, s, at[s.term])
				}
				at[s.term] += s.n
			}
			last := p.steps[len(p.steps)-1]
			if at != [2]int{k, k / 2} || p.top != 1 || last.store != 0 || !last.last {
				t.Fatalf("k %d, groups %d: covered %v, %d sums, last step %+v", k, groups, at, p.top, last)
			}
		}
	}
}

// TestExp: the exponential has the bits of ref.Exp32 on a fine sample of all
// floats and on all of them around the ends of its range.
func TestExp(t *testing.T) {
	var x []float32
	for u := uint64(0); u < 1<<32; u += 4099 {
		x = append(x, math.Float32frombits(uint32(u)))
	}
	for _, end := range []float32{0x1.62e42ep6, expHighest, -104, -87.33655, -103.97208} {
		for d := range 2048 {
			x = append(x, math.Float32frombits(math.Float32bits(end)+uint32(d)-1024))
		}
	}
	for _, s := range detect() {
		ws, y := &workspace{}, make([]float32, len(x))
		for lo := 0; lo < len(x); lo += chunk {
			ws.rowOf(s.expSum, min(chunk, len(x)-lo), &y[lo], &x[lo])
		}
		for i, v := range x {
			if want := ref.Exp32(v); kernels.Bits(y[i]) != kernels.Bits(want) {
				t.Fatalf("%s: exp(%g) = %g, want %g", s.name, v, y[i], want)
			}
		}
	}
}

// TestLanesWithoutElements: products that vanish below zero make every lane -0,
// and lanes without a last element stay so.
func TestLanesWithoutElements(t *testing.T) {
	for _, s := range detect() {
		for n := 32; n < 64; n++ {
			x, y, ws := make([]float32, n), make([]float32, n), &workspace{}
			for i := range n {
				x[i], y[i] = 0x1p-100, -0x1p-100
			}
			if sum := ws.rowOf(s.lanesDot, n, &x[0], &y[0]); math.Float32bits(sum) != 1<<31 {
				t.Errorf("%s, %d elements: the sum is %g, want -0", s.name, n, sum)
			}
		}
	}
}

// expHighest is where the assembly clamps its argument.
const expHighest = 89

// TestFault: a thread in a foreign floating-point mode is a sticky fault.
func TestFault(t *testing.T) {
	for _, s := range detect() {
		for _, mode := range []uint32{flushToZero, denormalsAreZero, 1 << 13, 1 << 14} {
			b, err := New(Options{ISA: s.name, Threads: 1})
			if err != nil {
				t.Fatal(err)
			}
			own := *s
			b.isa = &own
			buf, err := b.Alloc(4)
			if err != nil {
				t.Fatal(err)
			}
			b.Fill(kernels.Flat(buf), 1)
			if err := b.Sync(); err != nil {
				t.Fatalf("a sound thread: %v", err)
			}
			own.control = func() uint32 { return 0x1f80 | mode }
			b.Fill(kernels.Flat(buf), 1)
			own.control = s.control
			x := make([]float32, 4)
			if b.Sync() == nil || b.Read(x, kernels.Flat(buf)) == nil || b.ReadWide(make([]float64, 4), kernels.Flat(buf)) == nil {
				t.Errorf("%s: mode %#x went unnoticed", s.name, mode)
			}
		}
	}
}

// TestCanary: a unit that flushes subnormals or rounds wrongly is refused.
func TestCanary(t *testing.T) {
	for _, s := range detect() {
		for name, wrong := range map[string]func(float32) float32{
			"flushes":   func(x float32) float32 { return x * 0 },
			"truncates": func(x float32) float32 { return math.Float32frombits(math.Float32bits(x) - 1) },
		} {
			own := *s
			own.scale.f = func(p *byte) {
				a := (*vectorArgs)(unsafe.Pointer(p))
				s.scale.f(p)
				y := unsafe.Slice(a.p[0], a.n)
				y[a.n-1] = wrong(y[a.n-1])
			}
			b := &Backend{Backend: ref.New[float32](), isa: &own, threads: 1}
			if err := b.canary(); err == nil || !strings.Contains(err.Error(), "subnormal") {
				t.Errorf("%s: a unit that %s gives %v", s.name, name, err)
			}
		}
	}
}

// TestInstructionSets: the best one comes first, and what New does not know is
// refused with a reason.
func TestInstructionSets(t *testing.T) {
	names := ISAs()
	if names[len(names)-1] != Ref || slices.Contains(names[:len(names)-1], Ref) {
		t.Errorf("ISAs gives %v, want %s once and last", names, Ref)
	}
	b, err := New(Options{})
	if err != nil || b.Name() != "cpu-"+names[0] {
		t.Errorf("New gives %s, %v; want the best of %v", b.Name(), err, names)
	}
	for _, name := range []string{"AVX2", "neon", "avx512f"} {
		if _, err := ParseISA(name); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("ParseISA(%q): %v", name, err)
		}
	}
	for _, o := range []Options{{ISA: "x"}, {Threads: -1}} {
		if _, err := New(o); err == nil {
			t.Errorf("New(%+v) gave no error", o)
		}
	}
}
