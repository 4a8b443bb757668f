package sharding_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-ml/lockstep/contracts/sharding"
	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/shard"
)

// Bytes that were worked out by hand: units of 7, 5, 4 and a tied head of 7
// elements on dp=3, D=12 (four workers a rank: three levels), AdamW.
func TestZeROMemoryByHand(t *testing.T) {
	units := []sharding.Unit{{Elements: 7}, {Elements: 5}, {Elements: 4}, {Elements: 7, Tied: true}}
	// Rank 0 holds 3+2+2 elements and 3 of the tied head, rank 2 2+1+1 and 2. The
	// backward passes of the third unit and the tied head overlap: gradients of
	// 4+7 elements, and gathered with them the embedding's 7 for the head, and 5
	// of the unit that is next.
	for _, x := range []struct {
		stage, micro, rank int
		want               sharding.Memory
	}{
		{0, 1, 0, sharding.Memory{Weights: 64, Gradients: 276, Moments: 128}},
		{1, 1, 0, sharding.Memory{Weights: 64, Gradients: 276, Moments: 48}},
		{1, 1, 2, sharding.Memory{Weights: 64, Gradients: 276, Moments: 40}},
		{2, 1, 0, sharding.Memory{Weights: 64, Gradients: 120, FullGradient: 44, Moments: 56, Passing: 44}},
		{2, 2, 2, sharding.Memory{Weights: 64, Gradients: 72, FullGradient: 92, Moments: 32, Passing: 92}},
		{3, 1, 0, sharding.Memory{Weights: 28, Gathered: 64, Gradients: 120, FullGradient: 44, Moments: 56, Passing: 108}},
		{3, 3, 2, sharding.Memory{Weights: 16, Gathered: 64, Gradients: 72, FullGradient: 92, Moments: 32, Passing: 156}},
	} {
		z := sharding.ZeRO{Stage: x.stage, DP: 3, Workers: 12, MicroBatches: x.micro, Moments: 2, Units: units}
		got := z.Memory(x.rank)
		if diff := cmp.Diff(x.want, got); diff != "" {
			t.Errorf("stage %d, rank %d (-want +got):\n%s", x.stage, x.rank, diff)
		}
	}
}

// The unit in use and the next are gathered together, and in the backward pass
// the gradient of the one in use is there too; the first unit has no next.
func TestZeROPassing(t *testing.T) {
	z := sharding.ZeRO{Stage: 3, DP: 1, Workers: 1, MicroBatches: 1, Units: []sharding.Unit{{Elements: 9}, {Elements: 2}, {Elements: 4}}}
	for _, x := range []struct {
		elements                [3]int
		gathered, full, passing uint64
	}{{[3]int{9, 2, 4}, 11, 9, 18}, {[3]int{1, 2, 4}, 6, 4, 10}, {[3]int{5, 5, 0}, 10, 5, 15}, {[3]int{3, 7, 1}, 10, 7, 17}} {
		for i, n := range x.elements {
			z.Units[i].Elements = n
		}
		m := z.Memory(0)
		if m.Gathered != 4*x.gathered || m.FullGradient != 4*x.full || m.Passing != 4*x.passing {
			t.Errorf("units of %v: %+v", x.elements, m)
		}
	}
	z.Units = nil
	if m := z.Memory(0); m != (sharding.Memory{}) {
		t.Errorf("no units: %+v", m)
	}
}

// A block map gives whole units to ranks in stage 1, and moves them by broadcast.
func TestZeROBlockMap(t *testing.T) {
	z := sharding.ZeRO{Stage: 1, DP: 2, Workers: 2, MicroBatches: 1, Moments: 2, Units: []sharding.Unit{
		{Elements: 3, Held: []int{3, 0}}, {Elements: 5, Held: []int{0, 5}}, {Elements: 3, Tied: true, Held: []int{3, 0}}}}
	for rank, moments := range []uint64{24, 40} {
		m := z.Memory(rank)
		if want := (sharding.Memory{Weights: 32, Gradients: 44, Moments: moments}); m != want {
			t.Errorf("rank %d: %+v, want %+v", rank, m, want)
		}
	}
	checkWire(t, z, 4*(2*11+8))
}

// What is sharded adds up over ranks to one full copy, whatever divides what.
func TestZeROShardsAddUp(t *testing.T) {
	units := []sharding.Unit{{Elements: 1}, {Elements: 0}, {Elements: 13}, {Elements: 8}, {Elements: 1, Tied: true}}
	for stage := range 4 {
		for dp := 1; dp <= 9; dp++ {
			z := sharding.ZeRO{Stage: stage, DP: dp, Workers: 2 * dp, MicroBatches: 1, Moments: 2, Units: units}
			var sum sharding.Memory
			for rank := range dp {
				m := z.Memory(rank)
				sum.Weights, sum.Gradients, sum.Moments = sum.Weights+m.Weights, sum.Gradients+m.Gradients, sum.Moments+m.Moments
			}
			copies := func(sharded bool) uint64 {
				if sharded {
					return 1
				}
				return uint64(dp)
			}
			want := sharding.Memory{Weights: copies(stage >= 3) * 88, Gradients: copies(stage >= 2) * 2 * 92, Moments: copies(stage >= 1) * 176}
			if diff := cmp.Diff(want, sum); diff != "" {
				t.Errorf("stage %d, dp=%d (-want +got):\n%s", stage, dp, diff)
			}
		}
	}
}

// The bytes on the wire are the closed forms, and what the communicators count.
func TestZeROWireBytes(t *testing.T) {
	units := []sharding.Unit{{Elements: 31}, {Elements: 20}, {Elements: 20}, {Elements: 0}, {Elements: 5}}
	const p = 76
	for _, dp := range []int{1, 2, 3, 4, 8} {
		for _, per := range []int{1, 2, 8} {
			for _, m := range []int{1, 3} {
				for stage := range 4 {
					z := sharding.ZeRO{Stage: stage, DP: dp, Workers: dp * per, MicroBatches: m, Moments: 2, Units: units}
					base := int64(4 * p * (dp - 1))
					want := []int64{2 * base, 2 * base, base * int64(per+1), base * int64(per*(2*m+1))}[stage]
					checkWire(t, z, want)
				}
			}
		}
	}
	// A tied head is one more reduction of its own in every stage, and in
	// stage 3 one more unit to gather.
	units = []sharding.Unit{{Elements: 6}, {Elements: 4}, {Elements: 6, Tied: true}}
	for stage, elements := range []int64{2 * 16, 16 + 10, 2*16 + 10, 2*16 + 4*16} {
		checkWire(t, sharding.ZeRO{Stage: stage, DP: 3, Workers: 6, MicroBatches: 1, Units: units}, 4*2*elements)
	}
}

// checkWire holds the bytes of a step against want, and against what the
// communicators count of its collectives, rank by rank.
func checkWire(t *testing.T, z sharding.ZeRO, want int64) {
	t.Helper()
	counted := int64(0)
	for _, x := range z.Traffic() {
		for rank := range z.DP {
			counted += int64(x.Times) * comm.ShareBytes(x.Op, int64(x.Elements), shard.Part{Index: rank, Size: z.DP})
		}
	}
	if got := z.WireBytes(); got != want || counted != want {
		t.Errorf("%+v: %d bytes, communicators count %d, want %d", z, got, counted, want)
	}
}
