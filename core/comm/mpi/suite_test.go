//go:build mpi

package mpi

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/comm/commtest"
	"github.com/lockstep-ml/lockstep/core/comm/engine"
	"github.com/lockstep-ml/lockstep/core/comm/tcp"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
)

// These tests are one process of MPI's world, the first. All others are
// testdata/mirror.c: what goes to a rank whose turn that is goes there, and comes back,
// so that messages change processes while all ranks are in this one. See make
// test-mpi-transport.
var here *Process

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if here, err = Open(worldSize()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		code := m.Run()
		for i := 1; i < here.size; i++ {
			s, err := here.newSlot()
			if err == nil {
				err = s.send(1, address{i, 0})
			}
			for over := false; err == nil && !over; {
				_, over, err = s.test()
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
		}
		if err := here.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return code
	}())
}

// worldSize is what mpirun says.
func worldSize() (n int) {
	if _, err := fmt.Sscan(os.Getenv("OMPI_COMM_WORLD_SIZE"), &n); err != nil {
		return 1 // nobody has started this process
	}
	return n
}

func host(int) kernels.Backend { return commtest.Memory{} }

// way is a way whose links, one after the other, go through one process of MPI's world
// after the other.
func way(turn *atomic.Int64) func() (engine.Way, error) {
	return func() (engine.Way, error) {
		w, err := tcp.Listen("127.0.0.1:0")
		w = here.Way(w)
		if here.size > 1 {
			w.Link = func(ctx context.Context, conn net.Conn, _ bool) (engine.Link, error) {
				return here.connect(ctx, conn, int(turn.Add(1))%here.size)
			}
		}
		return w, err
	}
}

// TestSuite is the conformance suite over MPI.
func TestSuite(t *testing.T) {
	for _, algo := range []names.Algorithm{names.Tree, names.Ring, names.Star} {
		t.Run(string(algo), func(t *testing.T) {
			var turn atomic.Int64
			open := func(t testing.TB, size int) []comm.Communicator {
				comms, err := engine.Local(context.Background(), size, host, comm.Options{Algorithm: algo, Deadline: 10 * time.Second}, way(&turn))
				if err != nil {
					t.Fatal(err)
				}
				return comms
			}
			commtest.Run(t, open, host, algo == names.Tree)
			t.Logf("%d ends of links, in a world of %d processes", turn.Load(), here.size)
		})
	}
}
