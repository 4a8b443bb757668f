package shard_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-ml/lockstep/core/shard"
)

func tp350M(rank, size int) shard.TensorParallel {
	return shard.TensorParallel{Rank: rank, Size: size, Heads: 16, KVHeads: 4, HeadDim: 64, Intermediate: 4096, Vocab: 32768}
}

func TestTensorParallelSizes(t *testing.T) {
	for _, x := range []struct{ size, heads, kv, q, kvSize, intermediate int }{
		{1, 16, 4, 1024, 256, 4096}, {2, 8, 2, 512, 128, 2048}, {4, 4, 1, 256, 64, 1024},
		{8, 2, 1, 128, 64, 512}, {16, 1, 1, 64, 64, 256}, // KV heads are replicated
	} {
		for rank := range x.size {
			c := tp350M(rank, x.size)
			if err := c.Validate(); err != nil {
				t.Fatal(err)
			}
			got := []int{c.LocalHeads(), c.LocalKVHeads(), c.LocalQSize(), c.LocalKVSize(), c.LocalIntermediate()}
			if want := []int{x.heads, x.kv, x.q, x.kvSize, x.intermediate}; !slices.Equal(got, want) {
				t.Errorf("tp=%d rank %d: %v, want %v", x.size, rank, got, want)
			}
		}
	}
}

// Every head attends to KV heads that its rank holds, and each KV head is held
// by KVReplicas ranks.
func TestKVHeadsFollowHeads(t *testing.T) {
	for _, heads := range []int{4, 12, 16} {
		for _, kv := range []int{1, 2, 4} {
			for _, size := range []int{1, 2, 4} {
				held := make([]int, kv)
				var c shard.TensorParallel
				for rank := range size {
					c = shard.TensorParallel{Rank: rank, Size: size, Heads: heads, KVHeads: kv, HeadDim: 2, Intermediate: 4, Vocab: 9}
					if err := c.Validate(); err != nil {
						t.Fatal(err)
					}
					q, k := c.HeadRange(), c.KVHeadRange()
					for h := q.Lo; h < q.Hi; h++ {
						if !k.Has(h / (heads / kv)) {
							t.Errorf("%+v: head %d, but KV heads %v", c, h, k)
						}
					}
					for i := k.Lo; i < k.Hi; i++ {
						held[i]++
					}
				}
				if want := slices.Repeat([]int{c.KVReplicas()}, kv); !slices.Equal(held, want) {
					t.Errorf("%+v: KV heads are held %v times, want %v", c, held, want)
				}
			}
		}
	}
}

// However groups are shared out, the ranks' parts of the vocabulary join up, at
// bounds of the groups.
func TestVocabRange(t *testing.T) {
	for _, vocab := range []int{1, 3, 8, 258} {
		for _, groups := range []int{1, 4, 8} {
			bounds := shard.Bounds(vocab, groups)
			for _, size := range []int{1, 2, 4, 8} {
				next := 0
				for rank := range size {
					r, err := shard.TensorParallel{Rank: rank, Size: size, Vocab: vocab}.VocabRange(groups)
					if groups%size != 0 {
						if err == nil {
							t.Errorf("%d groups on %d ranks accepted", groups, size)
						}
						continue
					}
					if err != nil || r.Lo != next || r.Hi != bounds[(rank+1)*groups/size] {
						t.Errorf("vocabulary %d, %d groups, rank %d of %d: %v, error %v", vocab, groups, rank, size, r, err)
					}
					next = r.Hi
				}
			}
		}
	}
}

func TestTensorParallelRefuses(t *testing.T) {
	for _, x := range []struct {
		change func(c *shard.TensorParallel)
		want   string
	}{
		{func(c *shard.TensorParallel) { c.Size = 3 }, "heads=16: must be a multiple of tp=3"},
		{func(c *shard.TensorParallel) { c.Size, c.Rank = 0, 0 }, "world size 0"},
		{func(c *shard.TensorParallel) { c.Rank = 2 }, "rank 2 of 2"},
		{func(c *shard.TensorParallel) { c.Rank = -1 }, "rank -1 of 2"},
		{func(c *shard.TensorParallel) { c.Heads = 0 }, "heads=0"},
		{func(c *shard.TensorParallel) { c.KVHeads = 0 }, "kv_heads=0"},
		{func(c *shard.TensorParallel) { c.HeadDim = 0 }, "head_dim=0"},
		{func(c *shard.TensorParallel) { c.Vocab = 0 }, "vocab=0"},
		{func(c *shard.TensorParallel) { c.KVHeads = 5 }, "heads=16: must be a multiple of kv_heads=5"},
		{func(c *shard.TensorParallel) { c.Size, c.Heads, c.KVHeads = 4, 12, 6 }, "kv_heads=6: must be a multiple of tp=4 or divide it"},
		{func(c *shard.TensorParallel) { c.Intermediate = 4097 }, "intermediate=4097: must be a multiple of tp=2"},
	} {
		c := tp350M(0, 2)
		x.change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("error %v, want %q", err, x.want)
		}
		if _, err := c.WeightFraction(shard.WeightShape{Hidden: 8, Blocks: 1}); err == nil {
			t.Errorf("weight fraction of %+v accepted", c)
		}
	}
}

func TestWeightFraction(t *testing.T) {
	for _, x := range []struct {
		size  int
		shape shard.WeightShape
		want  string
	}{
		{1, shard.WeightShape{}, "1.0000"},
		{2, shard.WeightShape{Tied: true}, "0.5422"}, {2, shard.WeightShape{}, "0.5777"},
		{4, shard.WeightShape{Tied: true}, "0.3132"}, {4, shard.WeightShape{}, "0.3666"},
		{2, shard.WeightShape{Tied: true, VocabGroups: 2}, "0.5001"},
		{4, shard.WeightShape{Tied: true, VocabGroups: 4}, "0.2501"},
		{8, shard.WeightShape{Tied: true, VocabGroups: 8}, "0.1291"}, // each KV head twice
	} {
		x.shape.Hidden, x.shape.Blocks = 1024, 24
		got, err := tp350M(0, x.size).WeightFraction(x.shape)
		if err != nil || fmt.Sprintf("%.4f", got) != x.want {
			t.Errorf("tp=%d %+v: %.4f, error %v, want %s", x.size, x.shape, got, err, x.want)
		}
	}
}

func TestTPCost(t *testing.T) {
	c, err := shard.NewTPCost(1, 1024, 1024, 24, 2, 1)
	if err != nil {
		t.Fatal(err)
	}
	if c.BytesPerAllReduce != 4_194_304 || c.AllReduces() != 96 || c.LogicalBytes() != 402_653_184 ||
		c.LogicalBytes()/2 != 201_326_592 || c.WireBytes() != 2*402_653_184 || c.WireBytesPerRank() != 402_653_184 {
		t.Errorf("%+v: %d all-reduces, %d logical bytes, %d on the wire, %d per rank", c, c.AllReduces(), c.LogicalBytes(), c.WireBytes(), c.WireBytesPerRank())
	}
	// 16.106 ms for the forward half at 100 Gbit/s, and 10 us for each of 96.
	for _, x := range []struct{ gbit, latency, want float64 }{{100, 0, 2 * .01610612736}, {100, 1e-5, 2*.01610612736 + 96e-5}, {80, 0, .0402653184}} {
		if got, err := c.TimeSeconds(x.gbit, x.latency); err != nil || math.Abs(got-x.want) > 1e-12 {
			t.Errorf("%v Gbit/s, latency %v s: %v s, error %v, want %v", x.gbit, x.latency, got, err, x.want)
		}
	}
	for _, x := range [][2]float64{{0, 0}, {-1, 0}, {math.NaN(), 0}, {math.Inf(1), 0}, {1, -1}, {1, math.NaN()}, {1, math.Inf(1)}} {
		if _, err := c.TimeSeconds(x[0], x[1]); !errors.Is(err, shard.ErrRate) {
			t.Errorf("%v: error %v", x, err)
		}
	}
	c, _ = shard.NewTPCost(1, 1, 1, 1, 3, 2)
	// 4 bytes: 16 in all per all-reduce, 6 by the busiest of 3 ranks; 8 times.
	if c.WireBytes() != 128 || c.WireBytesPerRank() != 48 {
		t.Errorf("%+v: %d bytes on the wire, %d per rank", c, c.WireBytes(), c.WireBytesPerRank())
	}
	c, _ = shard.NewTPCost(8, 1024, 1024, 24, 1, 4)
	if s, err := c.TimeSeconds(1, 1); c.AllReduces() != 0 || c.LogicalBytes() != 0 || c.WireBytes() != 0 || c.WireBytesPerRank() != 0 || s != 0 || err != nil {
		t.Errorf("one rank: %d all-reduces, %v s, error %v", c.AllReduces(), s, err)
	}
	if _, err := shard.NewTPCost(1, 1, 1, 1, 0, 1); err == nil || !strings.Contains(err.Error(), "0 ranks: must be at least 1") {
		t.Errorf("no ranks: error %v", err)
	}
	if _, err := shard.NewTPCost(1<<20, 1<<20, 1<<20, 1, 2, 1); !errors.Is(err, shard.ErrOverflow) {
		t.Errorf("overflow: error %v", err)
	}
}

func extract[T any](t *testing.T, s shard.MatrixShard, full []T) []T {
	t.Helper()
	out, err := shard.ExtractShard(s, full)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestMatrixShardVectors(t *testing.T) {
	full := []float32{1, 2, 3, 4, 5, 6, 7, 8}
	for rank, want := range [][]float32{{1, 2, 5, 6}, {3, 4, 7, 8}} {
		s, err := shard.ColumnShard(2, 4, shard.Part{Index: rank, Size: 2})
		if err != nil || !slices.Equal(extract(t, s, full), want) {
			t.Errorf("columns %d of 2: %v, error %v", rank, s, err)
		}
	}
	for rank, want := range [][]float32{{1, 2, 3, 4}, {5, 6, 7, 8}} {
		s, err := shard.RowShard(4, 2, shard.Part{Index: rank, Size: 2})
		if err != nil || !slices.Equal(extract(t, s, full), want) {
			t.Errorf("rows %d of 2: %v, error %v", rank, s, err)
		}
	}
	s, err := shard.ColumnShard(1024, 1024, shard.Part{Index: 1, Size: 2})
	if err != nil || s.Range != (shard.Range{Lo: 512, Hi: 1024}) || s.Elements() != 1024*512 {
		t.Errorf("columns 1 of 2 of 1024x1024: %+v, error %v", s, err)
	}
}

// What the parts extract, they insert at the same places, and nothing else.
func TestMatrixShardRoundTrip(t *testing.T) {
	for _, shape := range [][2]int{{0, 0}, {0, 6}, {6, 0}, {1, 6}, {6, 1}, {6, 6}, {12, 6}} {
		for _, size := range []int{1, 2, 3, 6} {
			for _, cut := range []func(int, int, shard.Part) (shard.MatrixShard, error){shard.RowShard, shard.ColumnShard} {
				full := make([]int, shape[0]*shape[1])
				for i := range full {
					full[i] = i + 1
				}
				again, held := make([]int, len(full)), 0
				for rank := range size {
					s, err := cut(shape[0], shape[1], shard.Part{Index: rank, Size: size})
					if err != nil {
						continue // not divisible
					}
					part := extract(t, s, full)
					held += len(part)
					if err := shard.InsertShard(s, again, part); err != nil {
						t.Fatal(err)
					}
				}
				if held != 0 && (held != len(full) || !slices.Equal(full, again)) {
					t.Errorf("%v in %d: %d elements, %v", shape, size, held, again)
				}
			}
		}
	}
	// An uneven split, asked for by name.
	s := shard.MatrixShard{Rows: 2, Cols: 5, Axis: shard.Columns, Range: shard.Range{Lo: 3, Hi: 5}}
	if got := extract(t, s, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}); !slices.Equal(got, []int{3, 4, 8, 9}) {
		t.Errorf("columns [3,5) of 2x5: %v", got)
	}
}

// product is X*W^T for W of [out, in], integers: exact in any order.
func product(x, w []int, n, in, out int) []int {
	y := make([]int, n*out)
	for i := range n {
		for o := range out {
			for k := range in {
				y[i*out+o] += x[i*in+k] * w[o*in+k]
			}
		}
	}
	return y
}

// A column-parallel layer gives a slice of the dense output, row-parallel layers
// add up to it.
func TestParallelLayers(t *testing.T) {
	const n, in, out = 3, 12, 24
	x, w := make([]int, n*in), make([]int, in*out)
	for i := range x {
		x[i] = i*i%17 - 8
	}
	for i := range w {
		w[i] = i*i%23 - 11
	}
	dense := product(x, w, n, in, out)
	for _, size := range []int{1, 2, 3, 4, 12} {
		sum := make([]int, n*out)
		for rank := range size {
			p := shard.Part{Index: rank, Size: size}
			c, err1 := shard.ColumnParallel(in, out, p)
			r, err2 := shard.RowParallel(in, out, p)
			outputs, err3 := shard.ColumnShard(n, out, p)
			inputs, err4 := shard.ColumnShard(n, in, p)
			if err := errors.Join(err1, err2, err3, err4); err != nil {
				t.Fatal(err)
			}
			got := product(x, extract(t, c, w), n, in, out/size)
			if diff := cmp.Diff(extract(t, outputs, dense), got); diff != "" {
				t.Errorf("column parallel, rank %d of %d (-want +got):\n%s", rank, size, diff)
			}
			for i, y := range product(extract(t, inputs, x), extract(t, r, w), n, in/size, out) {
				sum[i] += y
			}
		}
		if diff := cmp.Diff(dense, sum); diff != "" {
			t.Errorf("row parallel, %d ranks (-want +got):\n%s", size, diff)
		}
	}
}

func TestMatrixShardRefuses(t *testing.T) {
	if _, err := shard.ColumnShard(3, 10, shard.Part{Index: 0, Size: 4}); err == nil || !strings.Contains(err.Error(), "10 columns: must be a multiple of 4") {
		t.Errorf("10 columns in 4: error %v", err)
	}
	if _, err := shard.RowShard(10, 4, shard.Part{Index: 0, Size: 4}); err == nil || !strings.Contains(err.Error(), "10 rows: must be a multiple of 4") {
		t.Errorf("10 rows in 4: error %v", err)
	}
	for _, p := range []shard.Part{{}, {Index: 2, Size: 2}, {Index: -1, Size: 2}} {
		if _, err := shard.RowShard(4, 4, p); err == nil {
			t.Errorf("part %v accepted", p)
		}
	}
	s, err := shard.RowShard(4, 2, shard.Part{Index: 1, Size: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{0, 7, 9} {
		if _, err := shard.ExtractShard(s, make([]int, n)); err == nil {
			t.Errorf("extract from %d elements accepted", n)
		}
		if err := shard.InsertShard(s, make([]int, n), make([]int, 4)); err == nil {
			t.Errorf("insert into %d elements accepted", n)
		}
	}
	for _, n := range []int{0, 3, 5} {
		if err := shard.InsertShard(s, make([]int, 8), make([]int, n)); err == nil {
			t.Errorf("insert of %d elements accepted", n)
		}
	}
	for _, bad := range []shard.MatrixShard{
		{Rows: 2, Cols: 2, Range: shard.Range{Hi: 1}},
		{Rows: -1, Cols: -1, Axis: shard.Rows},
		{Rows: 2, Cols: 2, Axis: shard.Rows, Range: shard.Range{Lo: 1, Hi: 3}},
		{Rows: 2, Cols: 2, Axis: shard.Rows, Range: shard.Range{Lo: 2, Hi: 1}},
		{Rows: 2, Cols: 2, Axis: shard.Columns, Range: shard.Range{Lo: -1, Hi: 1}},
		{Rows: math.MaxInt, Cols: 2, Axis: shard.Rows},
	} {
		if _, err := shard.ExtractShard(bad, make([]int, 4)); err == nil {
			t.Errorf("%+v accepted", bad)
		}
	}
}
