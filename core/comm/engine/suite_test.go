//go:build unix

package engine

import (
	"context"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/comm/commtest"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
)

func host(int) kernels.Backend { return commtest.Memory{} }

// TestSuite is the conformance suite over sockets as they are.
func TestSuite(t *testing.T) {
	for _, algo := range []names.Algorithm{names.Tree, names.Ring, names.Star} {
		t.Run(string(algo), func(t *testing.T) {
			open := func(t testing.TB, size int) []comm.Communicator {
				comms, err := Local(context.Background(), size, host, comm.Options{Algorithm: algo, Deadline: 10 * time.Second},
					func() (Way, error) { return sockets("127.0.0.1:0") })
				if err != nil {
					t.Fatal(err)
				}
				return comms
			}
			commtest.Run(t, open, host, algo == names.Tree)
		})
	}
}
