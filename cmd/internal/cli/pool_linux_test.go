package cli

import (
	"testing"

	"github.com/lockstep-ml/lockstep/core/launch/procs"
)

// Tensors are where others can read them where ranks share a host's memory, and only there.
func TestPool(t *testing.T) {
	for _, x := range []struct {
		transport, launch string
		has               bool
	}{
		{procs.Auto, Processes, true}, {procs.Shm, Processes, true}, {procs.TCP, Processes, false}, {procs.MPI, Processes, false},
		{procs.Auto, Goroutines, false}, {"local", Goroutines, false}, {procs.TCP, Goroutines, false}, {procs.Shm, Goroutines, true},
	} {
		if pool := (&Placement{Transport: x.transport, Launch: x.launch}).Pool(); (pool != nil) != x.has {
			t.Errorf("transport %s, launch %s: %T", x.transport, x.launch, pool)
		}
	}
}
