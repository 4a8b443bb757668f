package shard_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/shard"
)

func TestOptimizerShard(t *testing.T) {
	for _, x := range []struct {
		total, world int
		bounds       []int
	}{
		{100, 4, []int{0, 25, 50, 75, 100}},
		{10, 3, []int{0, 4, 7, 10}},
		{3, 5, []int{0, 1, 2, 3, 3, 3}},
		{0, 2, []int{0, 0, 0}},
		{7, 1, []int{0, 7}},
	} {
		for rank := range x.world {
			s, err := shard.NewOptimizerShard(rank, x.world, x.total)
			if err != nil {
				t.Fatal(err)
			}
			if want := (shard.Range{Lo: x.bounds[rank], Hi: x.bounds[rank+1]}); s.Range != want {
				t.Errorf("%d elements, rank %d of %d: %v, want %v", x.total, rank, x.world, s.Range, want)
			}
		}
	}
	for _, x := range []struct {
		rank, world, total int
		want               error
	}{{0, 0, 10, shard.ErrWorld}, {3, 3, 10, shard.ErrRank}, {-1, 3, 10, shard.ErrRank}} {
		if _, err := shard.NewOptimizerShard(x.rank, x.world, x.total); !errors.Is(err, x.want) {
			t.Errorf("rank %d of %d: error %v, want %v", x.rank, x.world, err, x.want)
		}
	}
	if _, err := shard.NewOptimizerShard(0, 1, -1); err == nil {
		t.Error("negative total accepted")
	}
}

// Shards of any world are disjoint, cover the vector in order, and differ by one
// element at most, the longer ones first.
func TestOptimizerShardsCover(t *testing.T) {
	for _, total := range []int{0, 1, 6, 7, 8, 1_000_003} {
		for world := 1; world <= 9; world++ {
			next, last := 0, math.MaxInt
			for rank := range world {
				s, err := shard.NewOptimizerShard(rank, world, total)
				if err != nil || s.Lo != next || s.Len() > last || s.Len() < total/world || s.Len() > total/world+1 {
					t.Fatalf("%d elements, rank %d of %d: %v, error %v", total, rank, world, s.Range, err)
				}
				next, last = s.Hi, s.Len()
			}
			if next != total {
				t.Fatalf("%d elements on %d ranks: covered %d", total, world, next)
			}
		}
	}
}

func TestOptimizerShardBytes(t *testing.T) {
	for _, x := range []struct {
		total, world int
		full, shard  uint64
		savings      float64
		moments      int
		master       bool
	}{
		{1_000_000, 4, 8_000_000, 2_000_000, .75, 2, false},
		{398_509_056, 2, 3_188_072_448, 1_594_036_224, .5, 2, false}, // 350M, tied
		{432_063_488, 4, 3_456_507_904, 864_126_976, .75, 2, false},  // 350M, untied
		{10, 3, 120, 48, .6, 2, true},                                // real, not ideal, savings
		{10, 3, 0, 0, .6, 0, false},
	} {
		s, err := shard.NewOptimizerShard(0, x.world, x.total)
		if err != nil {
			t.Fatal(err)
		}
		full, err1 := s.FullBytes(x.moments, x.master)
		part, err2 := s.Bytes(x.moments, x.master)
		if err1 != nil || err2 != nil || full != x.full || part != x.shard || s.Savings() != x.savings {
			t.Errorf("%d elements on %d ranks: %d of %d bytes, savings %v, errors %v, %v", x.total, x.world, part, full, s.Savings(), err1, err2)
		}
	}
	s, _ := shard.NewOptimizerShard(0, 1, math.MaxInt)
	if _, err := s.Bytes(2, false); !errors.Is(err, shard.ErrOverflow) {
		t.Errorf("overflow: error %v", err)
	}
	s, _ = shard.NewOptimizerShard(2, 3, 10)
	if s.IdealSavings() != 2./3 || s.Savings() != .7 {
		t.Errorf("savings %v, ideal %v", s.Savings(), s.IdealSavings())
	}
}

// Bytes that were worked out by hand: units of 7, 5, 4 and a tied head of 7
// elements on dp=3, D=12 (four workers a rank: three levels), AdamW.
func TestZeROMemoryByHand(t *testing.T) {
	units := []shard.Unit{{Elements: 7}, {Elements: 5}, {Elements: 4}, {Elements: 7, Tied: true}}
	// Rank 0 holds 3+2+2 elements and 3 of the tied head, rank 2 2+1+1 and 2. The
	// backward passes of the third unit and the tied head overlap: gradients of
	// 4+7 elements, and gathered with them the embedding's 7 for the head, and 5
	// of the unit that is next.
	for _, x := range []struct {
		stage, micro, rank int
		want               shard.Memory
	}{
		{0, 1, 0, shard.Memory{Weights: 64, Gradients: 276, Moments: 128}},
		{1, 1, 0, shard.Memory{Weights: 64, Gradients: 276, Moments: 48}},
		{1, 1, 2, shard.Memory{Weights: 64, Gradients: 276, Moments: 40}},
		{2, 1, 0, shard.Memory{Weights: 64, Gradients: 120, FullGradient: 44, Moments: 56, Passing: 44}},
		{2, 2, 2, shard.Memory{Weights: 64, Gradients: 72, FullGradient: 92, Moments: 32, Passing: 92}},
		{3, 1, 0, shard.Memory{Weights: 28, Gathered: 64, Gradients: 120, FullGradient: 44, Moments: 56, Passing: 108}},
		{3, 3, 2, shard.Memory{Weights: 16, Gathered: 64, Gradients: 72, FullGradient: 92, Moments: 32, Passing: 156}},
	} {
		z := shard.ZeRO{Stage: x.stage, DP: 3, Workers: 12, MicroBatches: x.micro, Moments: 2, Units: units}
		got, err := z.Memory(x.rank)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(x.want, got); diff != "" {
			t.Errorf("stage %d, rank %d (-want +got):\n%s", x.stage, x.rank, diff)
		}
	}
	m := shard.Memory{Weights: 1, Gathered: 2, Gradients: 4, FullGradient: 8, Moments: 16, Passing: 32}
	if sum, err := m.Total(); sum != 53 || err != nil {
		t.Errorf("total %d, error %v", sum, err)
	}
}

// The unit in use and the next are gathered together, and in the backward pass
// the gradient of the one in use is there too; the first unit has no next.
func TestZeROPassing(t *testing.T) {
	z := shard.ZeRO{Stage: 3, DP: 1, Workers: 1, MicroBatches: 1, Units: []shard.Unit{{Elements: 9}, {Elements: 2}, {Elements: 4}}}
	for _, x := range []struct {
		elements                [3]int
		gathered, full, passing uint64
	}{{[3]int{9, 2, 4}, 11, 9, 18}, {[3]int{1, 2, 4}, 6, 4, 10}, {[3]int{5, 5, 0}, 10, 5, 15}, {[3]int{3, 7, 1}, 10, 7, 17}} {
		for i, n := range x.elements {
			z.Units[i].Elements = n
		}
		m, err := z.Memory(0)
		if err != nil || m.Gathered != 4*x.gathered || m.FullGradient != 4*x.full || m.Passing != 4*x.passing {
			t.Errorf("units of %v: %+v, error %v", x.elements, m, err)
		}
	}
	z.Units = nil
	if m, err := z.Memory(0); err != nil || m != (shard.Memory{}) {
		t.Errorf("no units: %+v, error %v", m, err)
	}
}

// A block map gives whole units to ranks in stage 1, and moves them by broadcast.
func TestZeROBlockMap(t *testing.T) {
	z := shard.ZeRO{Stage: 1, DP: 2, Workers: 2, MicroBatches: 1, Moments: 2, Units: []shard.Unit{
		{Elements: 3, Held: []int{3, 0}}, {Elements: 5, Held: []int{0, 5}}, {Elements: 3, Tied: true, Held: []int{3, 0}}}}
	for rank, moments := range []uint64{24, 40} {
		m, err := z.Memory(rank)
		if want := (shard.Memory{Weights: 32, Gradients: 44, Moments: moments}); err != nil || m != want {
			t.Errorf("rank %d: %+v, error %v, want %+v", rank, m, err, want)
		}
	}
	checkWire(t, z, 4*(2*11+8))
	for _, held := range [][]int{{3}, {2, 0}, {4, -1}, {2, 2}} {
		z.Units[0].Held = held
		if err := z.Validate(); err == nil {
			t.Errorf("owners %v of 3 elements accepted", held)
		}
	}
}

// What is sharded adds up over ranks to one full copy, whatever divides what.
func TestZeROShardsAddUp(t *testing.T) {
	units := []shard.Unit{{Elements: 1}, {Elements: 0}, {Elements: 13}, {Elements: 8}, {Elements: 1, Tied: true}}
	for stage := range 4 {
		for dp := 1; dp <= 9; dp++ {
			z := shard.ZeRO{Stage: stage, DP: dp, Workers: 2 * dp, MicroBatches: 1, Moments: 2, Units: units}
			var sum shard.Memory
			for rank := range dp {
				m, err := z.Memory(rank)
				if err != nil {
					t.Fatal(err)
				}
				sum.Weights, sum.Gradients, sum.Moments = sum.Weights+m.Weights, sum.Gradients+m.Gradients, sum.Moments+m.Moments
			}
			copies := func(sharded bool) uint64 {
				if sharded {
					return 1
				}
				return uint64(dp)
			}
			want := shard.Memory{Weights: copies(stage >= 3) * 88, Gradients: copies(stage >= 2) * 2 * 92, Moments: copies(stage >= 1) * 176}
			if diff := cmp.Diff(want, sum); diff != "" {
				t.Errorf("stage %d, dp=%d (-want +got):\n%s", stage, dp, diff)
			}
		}
	}
}

// The bytes on the wire are the closed forms, and what the communicators count.
func TestZeROWireBytes(t *testing.T) {
	units := []shard.Unit{{Elements: 31}, {Elements: 20}, {Elements: 20}, {Elements: 0}, {Elements: 5}}
	const p = 76
	for _, dp := range []int{1, 2, 3, 4, 8} {
		for _, per := range []int{1, 2, 8} {
			for _, m := range []int{1, 3} {
				for stage := range 4 {
					z := shard.ZeRO{Stage: stage, DP: dp, Workers: dp * per, MicroBatches: m, Moments: 2, Units: units}
					base := uint64(4 * p * (dp - 1))
					want := []uint64{2 * base, 2 * base, base * uint64(per+1), base * uint64(per*(2*m+1))}[stage]
					checkWire(t, z, want)
				}
			}
		}
	}
	// A tied head is one more reduction of its own in every stage, and in
	// stage 3 one more unit to gather.
	units = []shard.Unit{{Elements: 6}, {Elements: 4}, {Elements: 6, Tied: true}}
	for stage, elements := range []uint64{2 * 16, 16 + 10, 2*16 + 10, 2*16 + 4*16} {
		checkWire(t, shard.ZeRO{Stage: stage, DP: 3, Workers: 6, MicroBatches: 1, Units: units}, 4*2*elements)
	}
}

func checkWire(t *testing.T, z shard.ZeRO, want uint64) {
	t.Helper()
	got, err := z.WireBytes()
	if err != nil || got != want {
		t.Errorf("%+v: %d bytes, error %v, want %d", z, got, err, want)
	}
	traffic, err := z.Traffic()
	if err != nil {
		t.Fatal(err)
	}
	sum := uint64(0)
	for rank := range z.DP {
		counted := int64(0)
		for _, x := range traffic {
			counted += int64(x.Times) * comm.ShareBytes(x.Op, int64(x.Elements), shard.Part{Index: rank, Size: z.DP})
		}
		share, err := z.RankWireBytes(rank)
		if err != nil || share != uint64(counted) {
			t.Errorf("%+v: rank %d sends %d bytes, error %v, communicators count %d", z, rank, share, err, counted)
		}
		sum += share
	}
	if sum != got {
		t.Errorf("%+v: shares add up to %d bytes of %d", z, sum, got)
	}
}

func TestZeRORefuses(t *testing.T) {
	good := shard.ZeRO{Stage: 2, DP: 2, Workers: 4, MicroBatches: 1, Moments: 2, Units: []shard.Unit{{Elements: 3}}}
	for _, x := range []struct {
		change func(z *shard.ZeRO)
		want   string
	}{
		{func(z *shard.ZeRO) { z.Stage = 4 }, "stage 4"},
		{func(z *shard.ZeRO) { z.Stage = -1 }, "stage -1"},
		{func(z *shard.ZeRO) { z.DP = 0 }, "dp=0"},
		{func(z *shard.ZeRO) { z.Workers = 0 }, "0 logical workers"},
		{func(z *shard.ZeRO) { z.Workers = 6 }, "6 logical workers: must be a power of two times dp=2"},
		{func(z *shard.ZeRO) { z.Workers = 3 }, "3 logical workers"},
		{func(z *shard.ZeRO) { z.MicroBatches = 0 }, "0 micro-batches"},
		{func(z *shard.ZeRO) { z.Moments = -1 }, "-1 moments"},
		{func(z *shard.ZeRO) { z.Units = []shard.Unit{{Elements: -1}} }, "unit 0 has -1 elements"},
		{func(z *shard.ZeRO) { z.Units = []shard.Unit{{Elements: math.MaxInt}, {Elements: 1}} }, "does not fit"},
	} {
		z := good
		x.change(&z)
		_, err1 := z.Memory(0)
		_, err2 := z.WireBytes()
		_, err3 := z.RankWireBytes(0)
		for _, err := range []error{err1, err2, err3} {
			if err == nil || !strings.Contains(err.Error(), x.want) {
				t.Errorf("error %v, want %q", err, x.want)
			}
		}
	}
	if _, err := good.Memory(2); !errors.Is(err, shard.ErrRank) {
		t.Errorf("rank 2 of 2: error %v", err)
	}
	if _, err := good.RankWireBytes(2); !errors.Is(err, shard.ErrRank) {
		t.Errorf("rank 2 of 2: error %v", err)
	}
	big := good
	big.Stage, big.Units = 0, []shard.Unit{{Elements: math.MaxInt}}
	if _, err := big.Memory(0); !errors.Is(err, shard.ErrOverflow) {
		t.Errorf("memory: error %v", err)
	}
	if _, err := big.WireBytes(); !errors.Is(err, shard.ErrOverflow) {
		t.Errorf("wire: error %v", err)
	}
	big = good
	big.Stage, big.MicroBatches = 3, math.MaxInt
	if _, err := big.Traffic(); !errors.Is(err, shard.ErrOverflow) {
		t.Errorf("traffic: error %v", err)
	}
	if _, err := (shard.Memory{Weights: math.MaxUint64, Moments: 1}).Total(); !errors.Is(err, shard.ErrOverflow) {
		t.Errorf("total: error %v", err)
	}
}
