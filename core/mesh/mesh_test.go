package mesh

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/null"
)

func TestCoordinatesRoundTrip(t *testing.T) {
	for _, d := range []Dims{{1, 1, 1}, {2, 3, 4}, {5, 1, 2}, {3, 2, 1}, {16, 16, 16}} {
		for r := range d.World() {
			if got := d.Rank(d.Coord(r)); got != r {
				t.Fatalf("%+v: rank %d comes back as %d", d, r, got)
			}
			for _, axis := range []string{"dp", "pp", "tp"} {
				if g := d.Group(r, axis); !slices.Contains(g, r) || !slices.IsSorted(g) {
					t.Fatalf("%+v: %s group of rank %d is %v", d, axis, r, g)
				}
			}
		}
	}
	d := Dims{DP: 2, PP: 2, TP: 2}
	for axis, want := range map[string][]int{"tp": {4, 5}, "pp": {5, 7}, "dp": {1, 5}} {
		if got := d.Group(5, axis); !slices.Equal(got, want) {
			t.Errorf("%s group of rank 5 of 2x2x2: %v, want %v", axis, got, want)
		}
	}
}

func TestGroupsOfAWorld(t *testing.T) {
	d := Dims{DP: 2, PP: 3, TP: 4}
	be := null.New()
	comms, err := comm.NewLocal(d.World(), func(int) kernels.Backend { return be }, comm.LocalOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for r := range comms {
		wg.Go(func() {
			m, err := New(context.Background(), comms[r], d, 2)
			if err != nil {
				t.Errorf("rank %d: %v", r, err)
				return
			}
			for axis, c := range map[string]comm.Communicator{"dp": m.DP, "pp": m.PP, "tp": m.TP} {
				if got, want := c.Ranks(), d.Group(r, axis); !slices.Equal(got, want) {
					t.Errorf("rank %d: %s group %v, want %v", r, axis, got, want)
				}
			}
			if got := m.KV.Ranks(); len(got) != 2 || got[0] != r/2*2 {
				t.Errorf("rank %d: KV group %v", r, got)
			}
		})
	}
	wg.Wait()
	if _, err := New(context.Background(), comms[0], Dims{1, 1, 2}, 1); err == nil {
		t.Error("a mesh of 2 ranks was made of a world of 24")
	}
}
