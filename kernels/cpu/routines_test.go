package cpu_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/cpu"
	"github.com/lockstep-ml/lockstep/kernels/drill"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// TestDrillRunsEverything: the cases of level 1 run every routine of every
// instruction set, and every path that its threads share, on one thread, two and
// more; and all of them give the bits of package ref.
func TestDrillRunsEverything(t *testing.T) {
	cases := drill.Cases(drill.Options{Level: 1})
	for _, isa := range cpu.ISAs() {
		for _, threads := range []int{1, 2, 5} {
			if isa == cpu.Ref && threads > 1 {
				continue
			}
			t.Run(fmt.Sprintf("%s/threads%d", isa, threads), func(t *testing.T) {
				b := open(t, isa, threads)
				start, elements := time.Now(), 0
				if err := drill.Run(t.Context(), b, ref.New[float32](), cases, func(r drill.Result) {
					elements += r.Elements
					if r.Difference != nil {
						t.Errorf("%s %s: %s", r.Case.Kernel, r.Case.Name, r.Difference)
					}
				}); err != nil {
					t.Fatal(err)
				}
				t.Logf("%d cases, %d elements, %v", len(cases), elements, time.Since(start))
				for _, r := range b.Tally() {
					if r.Calls == 0 {
						t.Errorf("never ran: %s", r.Name)
					}
				}
			})
		}
	}
}

// tally is what ran on b, by name; names are unique.
func tally(t *testing.T, b *cpu.Backend) map[string]uint64 {
	t.Helper()
	ran := map[string]uint64{}
	for _, r := range b.Tally() {
		if _, twice := ran[r.Name]; twice || r.Name == "" {
			t.Errorf("%s: two routines are called %q", b.Name(), r.Name)
		}
		ran[r.Name] = r.Calls
	}
	return ran
}

// TestTallyCounts: a kernel adds its own calls to the tally and nothing else; a
// path shared between threads is listed where there are threads, and counted
// where a kernel was cut.
func TestTallyCounts(t *testing.T) {
	tiles := map[string][4]string{
		cpu.AVX512: {"rows6x4AVX512", "rows1x1MaskedAVX512", "transposeAVX512", "addAVX512"},
		cpu.AVX2:   {"rows6x2AVX2", "rows1x1MaskedAVX2", "transposeAVX2", "addAVX2"},
	}
	widths := map[string]int{cpu.AVX512: 64, cpu.AVX2: 16}
	for _, isa := range cpu.ISAs() {
		if isa == cpu.Ref {
			if r := open(t, isa, 1).Tally(); len(r) != 0 {
				t.Errorf("plain Go has routines %v", r)
			}
			continue
		}
		names, wide := tiles[isa], widths[isa]
		for _, threads := range []int{1, 2} {
			b := open(t, isa, threads)
			for name, n := range tally(t, b) {
				if n != 0 {
					t.Errorf("%s, %d threads: %s ran %d times before any kernel", isa, threads, name, n)
				}
			}
			tensor := func(rows, cols int) kernels.Tensor {
				buf, err := b.Alloc(rows * cols)
				if err != nil {
					t.Fatal(err)
				}
				return kernels.Flat(buf).As(rows, cols)
			}
			b.MatMulNT(tensor(12, wide), tensor(12, 32), tensor(wide, 32), nil)
			b.MatMulNT(tensor(1, 3), tensor(1, 5), tensor(3, 5), nil)
			x := tensor(1, 40000)
			b.Add(x, x, x)
			b.Add(tensor(1, 3), tensor(1, 3), tensor(1, 3))
			b.Add(tensor(1, 0), tensor(1, 0), tensor(1, 0))
			want := map[string]uint64{names[0]: 2, names[1]: 1, names[2]: uint64(wide / map[string]int{cpu.AVX512: 16, cpu.AVX2: 8}[isa]), names[3]: 4, "B packed": 2}
			if threads > 1 {
				want["Add, shared"] = 1
			}
			for name, n := range tally(t, b) {
				if name != "a part on another thread than the caller's" && n != want[name] {
					t.Errorf("%s, %d threads: %s ran %d times, want %d", isa, threads, name, n, want[name])
				}
				delete(want, name)
			}
			if len(want) > 0 {
				t.Errorf("%s, %d threads: not in the tally: %v", isa, threads, want)
			}
			if _, shared := tally(t, b)["MatMulNT, shared by rows"]; shared != (threads > 1) {
				t.Errorf("%s, %d threads: a shared path is listed: %t", isa, threads, shared)
			}
		}
	}
}
