package shard_test

import (
	"errors"
	"math"
	"testing"

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

// Shards of several vectors side by side are one shard of them all.
func TestOptimizerShardsJoin(t *testing.T) {
	a, _ := shard.NewOptimizerShard(1, 3, 10)
	b, _ := shard.NewOptimizerShard(1, 3, 7)
	none, _ := shard.NewOptimizerShard(1, 3, 0)
	s := none.Join(a).Join(b)
	if s.Len() != 3+2 || s.Total != 17 || s.Savings() != 12./17 || s.Rank != 1 || s.World != 3 {
		t.Errorf("%+v, savings %v", s, s.Savings())
	}
}
