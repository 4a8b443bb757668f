package shard_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-ml/lockstep/core/shard"
)

func stageLengths(stages []shard.Range) []int {
	var out []int
	for _, r := range stages {
		out = append(out, r.Len())
	}
	return out
}

func TestStages(t *testing.T) {
	for _, x := range []struct {
		blocks, p int
		want      []int
	}{{24, 2, []int{12, 12}}, {24, 4, []int{6, 6, 6, 6}}, {10, 3, []int{4, 3, 3}}, {12, 3, []int{4, 4, 4}}, {1, 1, []int{1}}, {3, 3, []int{1, 1, 1}}} {
		got, err := shard.Stages(x.blocks, x.p)
		if err != nil || !slices.Equal(stageLengths(got), x.want) {
			t.Errorf("%d blocks on %d stages: %v, error %v, want %v", x.blocks, x.p, got, err, x.want)
		}
	}
	for _, x := range [][2]int{{4, 0}, {4, -1}, {3, 4}, {0, 1}} {
		if got, err := shard.Stages(x[0], x[1]); err == nil {
			t.Errorf("%d blocks on %d stages: %v accepted", x[0], x[1], got)
		}
		if got, err := shard.WeightedStages(shard.StageCosts{Blocks: make([]uint64, max(0, x[0]))}, x[1]); err == nil {
			t.Errorf("%d weighted blocks on %d stages: %v accepted", x[0], x[1], got)
		}
	}
}

func TestWeightedStagesOfEqualBlocks(t *testing.T) {
	for n := 1; n <= 13; n++ {
		for p := 1; p <= n; p++ {
			want, err := shard.Stages(n, p)
			if err != nil {
				t.Fatal(err)
			}
			got, err := shard.WeightedStages(shard.StageCosts{Blocks: slices.Repeat([]uint64{7}, n)}, p)
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%d blocks on %d stages: %v, error %v, want %v", n, p, got, err, want)
			}
		}
	}
}

// bestSplit tries all splits of n blocks into p runs: the least maximum, then
// the greatest minimum, then the longest first runs.
func bestSplit(c shard.StageCosts, p int) []shard.Range {
	type result struct {
		most, least uint64
		stages      []shard.Range
	}
	var best *result
	var try func(r result, lo int)
	try = func(r result, lo int) {
		if len(r.stages) == p {
			better := best == nil || r.most < best.most || r.most == best.most && (r.least > best.least ||
				r.least == best.least && slices.Compare(stageLengths(r.stages), stageLengths(best.stages)) > 0)
			if lo == len(c.Blocks) && better {
				best = &r
			}
			return
		}
		for hi := lo + 1; hi <= len(c.Blocks); hi++ {
			sum := uint64(0)
			for _, x := range c.Blocks[lo:hi] {
				sum += x
			}
			if lo == 0 {
				sum += c.Embed
			}
			if hi == len(c.Blocks) {
				sum += c.Head
			}
			try(result{max(r.most, sum), min(r.least, sum), append(slices.Clone(r.stages), shard.Range{Lo: lo, Hi: hi})}, hi)
		}
	}
	try(result{0, math.MaxUint64, nil}, 0)
	return best.stages
}

func TestWeightedStagesAgainstAllSplits(t *testing.T) {
	for seed := range uint64(80) {
		n := int(seed%8) + 1
		c := shard.StageCosts{Embed: seed % 5, Head: seed % 13}
		for i := range uint64(n) {
			c.Blocks = append(c.Blocks, (seed*2654435761+i*i*40503+i*977)%7)
		}
		for p := 1; p <= n; p++ {
			got, err := shard.WeightedStages(c, p)
			if err != nil {
				t.Fatal(err)
			}
			if want := bestSplit(c, p); !slices.Equal(got, want) {
				t.Errorf("%+v on %d stages: %v, want %v", c, p, got, want)
			}
		}
	}
}

// The head of the 350M model weighs as much as 2.2 blocks: counting blocks
// overloads the last stage.
func TestWeightedStages350M(t *testing.T) {
	c := shard.StageCosts{Blocks: slices.Repeat([]uint64{15_206_400}, 24), Head: 33_554_432}
	for _, x := range []struct {
		p        int
		weighted []int
	}{{2, []int{13, 11}}, {4, []int{7, 7, 6, 4}}} {
		even, err1 := shard.VirtualStages(24, x.p, 1)
		better, err2 := shard.WeightedVirtualStages(c, x.p, 1)
		before, err3 := shard.StageBalance(c, even)
		after, err4 := shard.StageBalance(c, better)
		if err := errors.Join(err1, err2, err3, err4); err != nil {
			t.Fatal(err)
		}
		var got []int
		for _, s := range better {
			got = append(got, s[0].Len())
		}
		if !slices.Equal(got, x.weighted) || after.MaxOverMean >= before.MaxOverMean {
			t.Errorf("%d stages: %v, max over mean %v instead of %v", x.p, got, after.MaxOverMean, before.MaxOverMean)
		}
	}
}

func TestVirtualStages(t *testing.T) {
	got, err := shard.VirtualStages(10, 2, 2)
	if err != nil {
		t.Fatal(err)
	}
	want := [][]shard.Range{{{Lo: 0, Hi: 3}, {Lo: 6, Hi: 8}}, {{Lo: 3, Hi: 6}, {Lo: 8, Hi: 10}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, x := range [][3]int{{10, 2, 0}, {10, 2, 6}, {10, 0, 1}, {10, 11, 1}, {10, 5, math.MaxInt}} {
		if got, err := shard.VirtualStages(x[0], x[1], x[2]); err == nil {
			t.Errorf("%v: %v accepted", x, got)
		}
	}
	// Every block once, each chunk where VirtualStage says.
	for p := 1; p <= 4; p++ {
		for v := 1; v <= 3; v++ {
			stages, err := shard.VirtualStages(13, p, v)
			flat, err2 := shard.Stages(13, p*v)
			if err := errors.Join(err, err2); err != nil {
				t.Fatal(err)
			}
			for s := range p {
				for c := range v {
					if stages[s][c] != flat[shard.VirtualStage(s, c, p)] {
						t.Errorf("P=%d V=%d: chunk %d of stage %d has blocks %v", p, v, c, s, stages[s][c])
					}
				}
			}
		}
	}
}

func TestStageBalance(t *testing.T) {
	c := shard.StageCosts{Blocks: []uint64{1, 2, 3, 4}, Embed: 5, Head: 6}
	got, err := shard.StageBalance(c, [][]shard.Range{{{Lo: 0, Hi: 1}, {Lo: 2, Hi: 3}}, {{Lo: 1, Hi: 2}, {Lo: 3, Hi: 4}}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(shard.Balance{Loads: []uint64{9, 12}, MaxOverMean: 12 / 10.5}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	whole := shard.Range{Lo: 0, Hi: 4}
	for name, bad := range map[string][][]shard.Range{
		"none":       {},
		"no chunks":  {{}},
		"gap":        {{{Lo: 0, Hi: 1}}, {{Lo: 2, Hi: 4}}},
		"overlap":    {{{Lo: 0, Hi: 3}}, {{Lo: 2, Hi: 4}}},
		"short":      {{{Lo: 0, Hi: 3}}},
		"beyond":     {{{Lo: 0, Hi: 5}}},
		"backward":   {{{Lo: 0, Hi: -1}}, {{Lo: -1, Hi: 4}}},
		"fewer here": {{whole, {Lo: 4, Hi: 4}}, {{Lo: 4, Hi: 4}}},
		"more here":  {{whole}, {{Lo: 4, Hi: 4}, {Lo: 4, Hi: 4}}},
	} {
		if b, err := shard.StageBalance(c, bad); err == nil {
			t.Errorf("%s: %v accepted", name, b)
		}
	}
	for _, over := range []shard.StageCosts{{Blocks: []uint64{math.MaxUint64, 1}}, {Blocks: []uint64{1, 1}, Head: math.MaxUint64}} {
		if _, err := shard.WeightedStages(over, 2); !errors.Is(err, shard.ErrOverflow) {
			t.Errorf("%v: error %v", over, err)
		}
	}
	if _, err := shard.StageBalance(shard.StageCosts{Blocks: make([]uint64, 4)}, [][]shard.Range{{whole}}); !errors.Is(err, shard.ErrEmpty) {
		t.Errorf("no cost: error %v", err)
	}
}
