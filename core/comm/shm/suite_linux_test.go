package shm_test

import (
	"context"
	"sync/atomic"
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
			suite(t, shm.Local, host, algo)
		})
	}
}

func suite(t *testing.T, w comm.World, be func(int) kernels.Backend, algo names.Algorithm) {
	open := func(t testing.TB, size int) []comm.Communicator {
		comms, err := w.Open(context.Background(), size, be, comm.Options{Algorithm: algo, Deadline: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		return comms
	}
	commtest.Run(t, open, be, algo == names.Tree)
}

// TestSuiteInPlace is the same where ranks read each other's tensors where they lie, with
// sums of them.
func TestSuiteInPlace(t *testing.T) {
	pool, err := shm.Memory()
	if err != nil {
		t.Fatal(err)
	}
	be := shm.InArena(pool)
	for _, algo := range race.Some(3, []names.Algorithm{names.Tree, names.Ring, names.Star}) {
		t.Run(string(algo), func(t *testing.T) {
			var posts atomic.Int64
			suite(t, shm.Posted(true, &posts), func(int) kernels.Backend { return be }, algo)
			if posts.Load() == 0 {
				t.Error("all was copied")
			}
		})
	}
}
