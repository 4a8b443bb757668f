package shm_test

import (
	"context"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/comm/commtest"
	"github.com/lockstep-ml/lockstep/core/comm/shm"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/internal/race"
	"github.com/lockstep-ml/lockstep/kernels"
)

func host(int) kernels.Backend { return commtest.Memory{} }

// TestSuite is the conformance suite over shared memory.
func TestSuite(t *testing.T) {
	for _, algo := range race.Some(3, []names.Algorithm{names.Tree, names.Ring, names.Star}) { // package engine tries the others then
		t.Run(string(algo), func(t *testing.T) {
			open := func(t testing.TB, size int) []comm.Communicator {
				comms, err := shm.Local(context.Background(), size, host, comm.Options{Algorithm: algo, Deadline: 10 * time.Second})
				if err != nil {
					t.Fatal(err)
				}
				return comms
			}
			commtest.Run(t, open, host, algo == names.Tree)
		})
	}
}
