package shard_test

import (
	"slices"
	"testing"

	"github.com/lockstep-ml/lockstep/core/shard"
)

// The interleaving rule of data sharding.
func TestInterleave(t *testing.T) {
	for _, x := range []struct {
		n, size int
		want    [][]int
	}{
		{10, 2, [][]int{{0, 2, 4, 6, 8}, {1, 3, 5, 7, 9}}},
		{7, 3, [][]int{{0, 3, 6}, {1, 4}, {2, 5}}},
		{5, 1, [][]int{{0, 1, 2, 3, 4}}},
		{2, 4, [][]int{{0}, {1}, nil, nil}},
		{0, 2, [][]int{nil, nil}},
	} {
		for i, want := range x.want {
			if got := (shard.Part{Index: i, Size: x.size}).Interleave(x.n); !slices.Equal(got, want) {
				t.Errorf("part %d of %d of %d: %v, want %v", i, x.size, x.n, got, want)
			}
		}
	}
}

func TestRange(t *testing.T) {
	r := shard.Range{Lo: 2, Hi: 5}
	for _, x := range []struct{ other, want shard.Range }{
		{shard.Range{Lo: 0, Hi: 2}, shard.Range{Lo: 2, Hi: 2}},
		{shard.Range{Lo: 3, Hi: 9}, shard.Range{Lo: 3, Hi: 5}},
		{shard.Range{Lo: 7, Hi: 9}, shard.Range{Lo: 7, Hi: 7}},
		{shard.Range{Lo: 0, Hi: 9}, r},
	} {
		if got := r.Intersect(x.other); got != x.want {
			t.Errorf("%v and %v: %v, want %v", r, x.other, got, x.want)
		}
	}
	if !r.Has(2) || r.Has(5) || r.Has(1) || r.Shift(-2) != (shard.Range{Lo: 0, Hi: 3}) || r.Empty() || !(shard.Range{Lo: 3, Hi: 3}).Empty() {
		t.Error("half-open ranges")
	}
}

func TestBounds(t *testing.T) {
	for n := range 20 {
		for size := 1; size <= 7; size++ {
			b := shard.Bounds(n, size)
			if len(b) != size+1 || b[0] != 0 || b[size] != n {
				t.Fatalf("%d in %d: %v", n, size, b)
			}
			for i := range size {
				want := n / size
				if i < n%size {
					want++
				}
				if b[i+1]-b[i] != want || (shard.Part{Index: i, Size: size}).Of(n) != (shard.Range{Lo: b[i], Hi: b[i+1]}) {
					t.Fatalf("%d in %d: %v", n, size, b)
				}
			}
		}
	}
}

func TestCheckBounds(t *testing.T) {
	huge := 1<<33 + 3
	got, err := shard.CheckBounds(nil, huge, 4)
	if want := []int{0, 1<<31 + 1, 1<<32 + 2, 3<<31 + 3, huge}; err != nil || !slices.Equal(got, want) {
		t.Errorf("bounds of %d elements are %v, %v; want %v", huge, got, err, want)
	}
	if _, err := shard.CheckBounds([]int{0, huge - 1, huge}, huge, 2); err != nil {
		t.Errorf("uneven bounds of %d elements: %v", huge, err)
	}
	for _, bad := range [][]int{{}, {0, 4}, {1, 2, 4}, {0, 2, 3}, {0, 5, 4}, {0, -1, 4}, {0, 2, 4, 4}} {
		if _, err := shard.CheckBounds(bad, 4, 2); err == nil {
			t.Errorf("bounds %v of 4 elements on 2 ranks are accepted", bad)
		}
	}
}
