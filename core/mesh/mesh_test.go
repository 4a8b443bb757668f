package mesh

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/null"
)

func TestGroupsOfAWorld(t *testing.T) {
	d := names.Dims{DP: 2, PP: 3, TP: 4}
	be := null.New()
	comms, err := comm.NewLocal(d.World(), func(int) kernels.Backend { return be }, comm.Options{})
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
			for axis, c := range map[names.Axis]comm.Communicator{names.DP: m.DP, names.PP: m.PP, names.TP: m.TP, names.World: m.World} {
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
	if _, err := New(context.Background(), comms[0], names.Dims{DP: 1, PP: 1, TP: 2}, 1); err == nil {
		t.Error("a mesh of 2 ranks was made of a world of 24")
	}
}
