package drill_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/lockstep-ml/lockstep/core/drill"
	"github.com/lockstep-ml/lockstep/core/names"
)

// TestMisfitsDisagree: each misfit is a possible call of every rank, of which two do
// not agree in what the name says, and every operation and every rank is the odd one
// of some.
func TestMisfitsDisagree(t *testing.T) {
	for _, size := range []int{2, 3, 4, 17} {
		seen, odd := map[string]bool{}, map[int]bool{}
		for _, m := range drill.Misfits(size) {
			if seen[m.Name] {
				t.Errorf("world of %d: %q twice", size, m.Name)
			}
			seen[m.Name] = true
			if len(m.Calls) != size {
				t.Fatalf("world of %d: %s: %d calls", size, m.Name, len(m.Calls))
			}
			same := 0
			for r, call := range m.Calls {
				if call.Digest = drill.Expect(call); drill.Verify(call) != nil {
					t.Errorf("world of %d: %s: rank %d: no possible call: %v", size, m.Name, r, drill.Verify(call))
				}
				other := m.Calls[(r+1)%size]
				other.Rank, other.Digest = call.Rank, call.Digest
				if reflect.DeepEqual(call, other) {
					same++
				}
				before := m.Calls[(r+size-1)%size]
				before.Rank, before.Digest = call.Rank, call.Digest
				if !reflect.DeepEqual(call, other) && !reflect.DeepEqual(call, before) {
					odd[r] = true
				}
			}
			if same == size {
				t.Errorf("world of %d: %s: all ranks call the same", size, m.Name)
			}
		}
		want := []string{"root of broadcast", "length of a message: longer", "length of a message: shorter",
			"direction of a message: both send", "direction of a message: both receive"}
		for _, op := range []string{names.OpAllReduce, names.OpReduceScatter, names.OpAllReduceInt} {
			want = append(want, "reduction of "+op)
		}
		for _, op := range []string{names.OpAllReduce, names.OpReduceScatter, names.OpAllGather, names.OpBroadcast, names.OpAllReduceInt} {
			want = append(want, "length of "+op+": longer", "length of "+op+": shorter", "length of "+op+": empty")
		}
		for _, op := range []string{names.OpReduceScatter, names.OpAllGather} {
			want = append(want, "bounds of "+op)
			if size > 2 {
				want = append(want, "bounds of "+op+" between others")
			}
		}
		if size > 2 {
			want = append(want, "peer of a receive", "peer of a send")
		}
		for _, name := range want {
			if !seen[name] {
				t.Errorf("world of %d: nothing disagrees in the %s", size, name)
			}
		}
		for r := range size {
			if !odd[r] {
				t.Errorf("world of %d: rank %d is never the odd one", size, r)
			}
		}
	}
}

// TestBothWaysBetweenAllPairs: at the lowest level every rank sends to every other
// one, and long vectors come in every operation on tensors.
func TestBothWaysBetweenAllPairs(t *testing.T) {
	for _, size := range []int{2, 3, 4, 8, 17} {
		ways, long := map[string]bool{}, map[string]bool{}
		for _, r := range plan(size, 0) {
			if r.Op == names.OpSend && r.Count > 0 && len(r.Group) == size {
				ways[fmt.Sprint(r.Rank, r.Peer)] = true
			}
			if r.Count > 4096 {
				long[r.Op] = true
			}
		}
		if want := size * (size - 1); len(ways) != want {
			t.Errorf("world of %d: data goes %d ways, want %d", size, len(ways), want)
		}
		for _, op := range []string{names.OpAllReduce, names.OpReduceScatter, names.OpAllGather, names.OpBroadcast, names.OpSend, names.OpRecv} {
			if !long[op] {
				t.Errorf("world of %d: no long %s", size, op)
			}
		}
		if roots := roots(size); len(roots) != size {
			t.Errorf("world of %d: roots %v", size, roots)
		}
	}
}

// roots are those of the broadcasts in the world.
func roots(size int) (out []int) {
	for _, r := range plan(size, 0) {
		if r.Op == names.OpBroadcast && len(r.Group) == size && !slices.Contains(out, r.Peer) {
			out = append(out, r.Peer)
		}
	}
	return out
}
