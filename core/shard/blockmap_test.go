package shard_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-ml/lockstep/core/shard"
)

func blockMap(t *testing.T) func(shard.BlockMap, error) shard.BlockMap {
	return func(m shard.BlockMap, err error) shard.BlockMap {
		t.Helper()
		if err == nil {
			err = m.Validate()
		}
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
}

func TestBlockMaps(t *testing.T) {
	roundRobin := blockMap(t)(shard.RoundRobin(24, 4))
	contiguous := blockMap(t)(shard.Contiguous(24, 4))
	for _, x := range []struct {
		m    shard.BlockMap
		rank int
		want []int
	}{
		{roundRobin, 0, []int{0, 4, 8, 12, 16, 20}},
		{roundRobin, 3, []int{3, 7, 11, 15, 19, 23}},
		{contiguous, 0, []int{0, 1, 2, 3, 4, 5}},
		{contiguous, 1, []int{6, 7, 8, 9, 10, 11}},
		{contiguous, 2, []int{12, 13, 14, 15, 16, 17}},
		{contiguous, 3, []int{18, 19, 20, 21, 22, 23}},
		{blockMap(t)(shard.Contiguous(10, 3)), 0, []int{0, 1, 2, 3}},
		{blockMap(t)(shard.Contiguous(10, 3)), 1, []int{4, 5, 6}},
		{blockMap(t)(shard.Contiguous(10, 3)), 2, []int{7, 8, 9}},
		{blockMap(t)(shard.Contiguous(12, 3)), 0, []int{0, 1, 2, 3}},
		{blockMap(t)(shard.Contiguous(2, 3)), 1, []int{1}},
		{blockMap(t)(shard.Contiguous(2, 3)), 2, nil},
		{blockMap(t)(shard.RoundRobin(0, 2)), 0, nil},
	} {
		got, err := x.m.BlocksOf(x.rank)
		if err != nil || !slices.Equal(got, x.want) {
			t.Errorf("%v, rank %d: %v, error %v, want %v", x.m, x.rank, got, err, x.want)
		}
		for _, b := range got {
			if o, err := x.m.Owner(b); o != x.rank || err != nil {
				t.Errorf("%v: block %d has owner %d, error %v", x.m, b, o, err)
			}
		}
	}
}

// sizes350M are the bytes of the AdamW state of the 350M model.
func sizes350M(tied bool) shard.Sizes {
	s := shard.Sizes{Blocks: slices.Repeat([]uint64{8 * 15_206_400}, 24), Embed: 8 * 33_554_432, FinalNorm: 8 * 1024, Head: 8 * 33_554_432}
	if tied {
		s.Head = 0
	}
	return s
}

// The shares of rank 0 and of the others, and max over mean, of the published
// placement: not 1/world, as counting blocks would have it.
func TestBlockMapTrueShares(t *testing.T) {
	for _, x := range []struct {
		tied         bool
		world        int
		first, other string
		balance      string
	}{
		{true, 2, "54.2", "45.8", "1.084"}, {true, 4, "31.3", "22.9", "1.253"}, {true, 8, "19.9", "11.4", "1.589"},
		{false, 2, "57.8", "42.2", "1.155"}, {false, 4, "36.6", "21.1", "1.466"}, {false, 8, "26.1", "10.6", "2.087"},
	} {
		m, s := blockMap(t)(shard.Contiguous(24, x.world)), sizes350M(x.tied)
		first, err1 := m.FractionHeld(s, 0)
		other, err2 := m.FractionHeld(s, 1)
		b, err3 := m.Balance(s)
		if err := errors.Join(err1, err2, err3); err != nil {
			t.Fatal(err)
		}
		got := []string{fmt.Sprintf("%.1f", 100*first), fmt.Sprintf("%.1f", 100*other), fmt.Sprintf("%.3f", b.MaxOverMean)}
		if want := []string{x.first, x.other, x.balance}; !slices.Equal(got, want) {
			t.Errorf("tied %v, world %d: %v, want %v", x.tied, x.world, got, want)
		}
		better, err := blockMap(t)(shard.Balanced(s, x.world)).Balance(s)
		if err != nil || better.MaxOverMean >= b.MaxOverMean {
			t.Errorf("tied %v, world %d: balanced %v, contiguous %v, error %v", x.tied, x.world, better.MaxOverMean, b.MaxOverMean, err)
		}
	}
}

func TestBalanced(t *testing.T) {
	for _, x := range []struct {
		name  string
		sizes shard.Sizes
		world int
		want  shard.BlockMap
	}{
		{"largest first", shard.Sizes{Blocks: []uint64{2, 3, 4}, Embed: 5, FinalNorm: 1, Head: 6}, 2,
			shard.BlockMap{Head: 0, Embed: 1, Blocks: []int{0, 0, 1}, FinalNorm: 1, World: 2}},
		{"ties go to the lowest rank", shard.Sizes{Blocks: []uint64{1, 1, 1, 1}, Embed: 1, FinalNorm: 1, Head: 1}, 3,
			shard.BlockMap{Embed: 0, Head: 1, Blocks: []int{2, 0, 1, 2}, FinalNorm: 0, World: 3}},
		{"a tied head goes with the embedding", shard.Sizes{Blocks: []uint64{9, 2}, Embed: 5, FinalNorm: 1}, 3,
			shard.BlockMap{Blocks: []int{0, 2}, Embed: 1, Head: 1, FinalNorm: 2, World: 3}},
		{"no blocks", shard.Sizes{Embed: 1}, 1, shard.BlockMap{World: 1}},
	} {
		got, err := shard.Balanced(x.sizes, x.world)
		if err != nil {
			t.Fatalf("%s: %v", x.name, err)
		}
		if diff := cmp.Diff(x.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", x.name, diff)
		}
	}
}

// The largest load is below 4/3 of the best of all placements.
func TestBalancedAgainstAllPlacements(t *testing.T) {
	for seed := range uint64(60) {
		world := int(seed%3) + 2
		var all []uint64
		for i := range uint64(7) {
			all = append(all, (seed*2654435761+i*i*40503+i*977)%23+1)
		}
		best := uint64(math.MaxUint64)
		var try func(i int, loads []uint64)
		try = func(i int, loads []uint64) {
			if i == len(all) {
				best = min(best, slices.Max(loads))
				return
			}
			for r := range loads {
				loads[r] += all[i]
				try(i+1, loads)
				loads[r] -= all[i]
			}
		}
		try(0, make([]uint64, world))
		s := shard.Sizes{Embed: all[0], Head: all[1], FinalNorm: all[2], Blocks: all[3:]}
		b, err := blockMap(t)(shard.Balanced(s, world)).Balance(s)
		if err != nil {
			t.Fatal(err)
		}
		sum := uint64(0)
		for _, l := range b.Loads {
			sum += l
		}
		want := uint64(0)
		for _, x := range all {
			want += x
		}
		if got := slices.Max(b.Loads); 3*got >= 4*best || sum != want {
			t.Errorf("sizes %v on %d ranks: loads %v, best maximum %d", all, world, b.Loads, best)
		}
	}
}

func TestBlockMapRefuses(t *testing.T) {
	good := blockMap(t)(shard.RoundRobin(3, 2))
	one := shard.Sizes{Blocks: []uint64{1, 1, 1}}
	for _, x := range []struct {
		name string
		run  func() error
		want error
	}{
		{"world 0", func() error { _, err := shard.RoundRobin(3, 0); return err }, shard.ErrWorld},
		{"world -1", func() error { _, err := shard.Contiguous(3, -1); return err }, shard.ErrWorld},
		{"world 0, balanced", func() error { _, err := shard.Balanced(one, 0); return err }, shard.ErrWorld},
		{"rank 2 of 2", func() error { _, err := good.BlocksOf(2); return err }, shard.ErrRank},
		{"rank -1", func() error { _, err := good.FractionHeld(one, -1); return err }, shard.ErrRank},
		{"block 3 of 3", func() error { _, err := good.Owner(3); return err }, shard.ErrBlock},
		{"block -1", func() error { _, err := good.Owner(-1); return err }, shard.ErrBlock},
		{"owner 2 of a block", func() error { return shard.BlockMap{Blocks: []int{0, 2}, World: 2}.Validate() }, shard.ErrOwner},
		{"owner -1 of a block", func() error { return shard.BlockMap{Blocks: []int{-1}, World: 2}.Validate() }, shard.ErrOwner},
		{"owner of the embedding", func() error { return shard.BlockMap{Embed: 2, World: 2}.Validate() }, shard.ErrOwner},
		{"owner of the norm", func() error { return shard.BlockMap{FinalNorm: 2, World: 2}.Validate() }, shard.ErrOwner},
		{"owner of the head", func() error { return shard.BlockMap{Head: 2, World: 2}.Validate() }, shard.ErrOwner},
		{"owner, by loads", func() error {
			_, err := shard.BlockMap{Blocks: []int{7, 0, 0}, World: 2}.Loads(one)
			return err
		}, shard.ErrOwner},
		{"overflow", func() error {
			_, err := good.Loads(shard.Sizes{Blocks: []uint64{1, 1, 1}, Embed: math.MaxUint64})
			return err
		}, shard.ErrOverflow},
		{"overflow over ranks", func() error {
			_, err := good.Balance(shard.Sizes{Blocks: []uint64{1, math.MaxUint64, 0}})
			return err
		}, shard.ErrOverflow},
		{"overflow, balanced", func() error {
			_, err := shard.Balanced(shard.Sizes{Embed: math.MaxUint64, Head: 1}, 1)
			return err
		}, shard.ErrOverflow},
		{"no bytes", func() error { _, err := good.Balance(shard.Sizes{Blocks: make([]uint64, 3)}); return err }, shard.ErrEmpty},
	} {
		if err := x.run(); !errors.Is(err, x.want) {
			t.Errorf("%s: error %v, want %v", x.name, err, x.want)
		}
	}
	if _, err := good.Loads(shard.Sizes{Blocks: []uint64{1}}); err == nil {
		t.Error("sizes of another model accepted")
	}
	if _, err := shard.RoundRobin(-1, 2); err == nil {
		t.Error("-1 blocks accepted")
	}
}
