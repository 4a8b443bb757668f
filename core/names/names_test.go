package names

import (
	"slices"
	"testing"
)

// TestDims: Coord and Rank are inverse, and the groups of each axis partition
// the world into groups of its size whose members share the other coordinates.
func TestDims(t *testing.T) {
	for _, d := range []Dims{{1, 1, 1}, {2, 3, 4}, {5, 1, 2}, {1, 4, 1}, {3, 2, 1}} {
		for rank := range d.World() {
			if got := d.Rank(d.Coord(rank)); got != rank {
				t.Errorf("%v: rank %d has coordinates %v of rank %d", d, rank, d.Coord(rank), got)
			}
		}
		for axis, size := range map[Axis]int{DP: d.DP, PP: d.PP, TP: d.TP, World: d.World()} {
			seen := map[int]int{}
			for rank := range d.World() {
				g := d.Group(rank, axis)
				if len(g) != size || !slices.Contains(g, rank) || !slices.IsSorted(g) {
					t.Errorf("%v: group %s of rank %d is %v, want %d ranks, ascending", d, axis, rank, g, size)
				}
				for _, r := range g {
					seen[r]++
					if !slices.Equal(d.Group(r, axis), g) {
						t.Errorf("%v: ranks %d and %d disagree on their group %s", d, rank, r, axis)
					}
				}
			}
			for r, n := range seen {
				if n != size {
					t.Errorf("%v: rank %d is in %d groups %s, want %d", d, r, n, axis, size)
				}
			}
		}
	}
}

// TestNoAxis: what is no axis has no ranks, least of all the tensor-parallel
// ones.
func TestNoAxis(t *testing.T) {
	for _, axis := range []Axis{"", "ep", "TP", KV} {
		if g := (Dims{2, 2, 2}).Group(3, axis); g != nil {
			t.Errorf("axis %q: ranks %v, want none", axis, g)
		}
	}
}

// TestGroups pins the groups of rank 5 of 2x2x2.
func TestGroups(t *testing.T) {
	d := Dims{DP: 2, PP: 2, TP: 2}
	for axis, want := range map[Axis][]int{TP: {4, 5}, PP: {5, 7}, DP: {1, 5}} {
		if got := d.Group(5, axis); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", axis, got, want)
		}
	}
}
