//go:build cuda

package cuda_test

import (
	"testing"

	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// TestEachPart: every multiprocessor computes, and each gives the sum of the definition.
func TestEachPart(t *testing.T) {
	b := open(t)
	for _, seed := range []uint32{0, 1, 1 << 31, 4_000_000_000} {
		waits := b.Waits()
		parts, err := b.EachPart(seed)
		if err != nil {
			t.Fatal(err)
		}
		if n := b.Waits() - waits; n != 1 {
			t.Errorf("seed %d: %d waits are counted, want 1", seed, n)
		}
		ran, want := map[uint32]bool{}, ref.PartSum(seed)
		for _, p := range parts {
			if ran[p.ID] = true; p.Sum != want {
				t.Fatalf("seed %d: multiprocessor %d has sum %#x, want %#x", seed, p.ID, p.Sum, want)
			}
		}
		if len(ran) != b.Parts() || len(parts)%b.Parts() != 0 || len(parts) < 2*b.Parts() { // small blocks: several fit
			t.Errorf("seed %d: %d blocks ran on %d multiprocessors of %d", seed, len(parts), len(ran), b.Parts())
		}
	}
	for _, r := range b.Tally() {
		if r.Name == "part" {
			t.Errorf("kernel %s is counted: no case of a kernel ever calls it", r.Name)
		}
	}
}
