package golden_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-ml/lockstep/golden"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/cpu"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// TestLarge: the 5M run has its golden fingerprints on every instruction set,
// with one thread and two, and the 50M run on the best one; full tiles and
// chains longer than a block took part. Plain Go, which recorded both, repeats
// the first step of 5M: it would need minutes for all.
func TestLarge(t *testing.T) {
	variants, err := golden.Large()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range variants {
		t.Run(v.Name, func(t *testing.T) {
			if *update {
				t.Parallel()
				record(t, v)
				return
			}
			want, err := golden.LoadFingerprints(v.Name)
			if err != nil {
				t.Fatal(err)
			}
			if len(want.Steps) != v.Config.Steps {
				t.Errorf("%d steps: want %d", len(want.Steps), v.Config.Steps)
			}
			small := v.Config.Model.Name == "5M"
			for i, isa := range cpu.ISAs() {
				if isa == cpu.Ref || i > 0 && !small {
					continue
				}
				for _, threads := range []int{1, 2} {
					if small || threads == 2 {
						t.Run(fmt.Sprintf("%s on %d", isa, threads), func(t *testing.T) { tallied(t, v, want, isa, threads) })
					}
				}
			}
			if small {
				v.Config.Steps = 1
				t.Run("plain", func(t *testing.T) { compare(t, v, want, ref.New[float32]()) })
			}
		})
	}
}

// tallied compares a run on an instruction set, and that its tiles were used.
func tallied(t *testing.T, v golden.Variant, want *golden.Fingerprints, isa string, threads int) {
	var n cpu.Tally
	b, err := cpu.New(cpu.Options{ISA: isa, Threads: threads, Tally: &n})
	if err != nil {
		t.Fatal(err)
	}
	compare(t, v, want, b)
	if n.Full.Load() == 0 || n.Long.Load() == 0 || n.Merged.Load() == 0 {
		t.Errorf("%d full tiles, %d pieces of long chains, %d merged sums: want some of each", n.Full.Load(), n.Long.Load(), n.Merged.Load())
	}
}

// compare runs a variant and compares its steps.
func compare(t *testing.T, v golden.Variant, want *golden.Fingerprints, b kernels.Backend) {
	t.Helper()
	got := run(t, v, b)
	if err := want.Comparable(got.Spec, got.Arithmetic, got.TextHash); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.Steps[:v.Config.Steps], got.Steps); diff != "" {
		t.Error(diff)
	}
}
