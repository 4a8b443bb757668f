//go:build unix

package tcp_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/comm/commtest"
	"github.com/lockstep-ml/lockstep/core/comm/engine"
	"github.com/lockstep-ml/lockstep/core/comm/tcp"
	"github.com/lockstep-ml/lockstep/core/comm/wire"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/internal/authority"
	"github.com/lockstep-ml/lockstep/internal/race"
	"github.com/lockstep-ml/lockstep/kernels"
)

func host(int) kernels.Backend { return commtest.Memory{} }

// TestSuite is the conformance suite over loopback.
func TestSuite(t *testing.T) {
	for _, algo := range race.Some(3, []names.Algorithm{names.Tree, names.Ring, names.Star}) { // package engine tries the others then
		t.Run(string(algo), func(t *testing.T) {
			open := func(t testing.TB, size int) []comm.Communicator {
				comms, err := tcp.Local(context.Background(), size, host, comm.Options{Algorithm: algo, Deadline: 10 * time.Second})
				if err != nil {
					t.Fatal(err)
				}
				return comms
			}
			commtest.Run(t, open, host, algo == names.Tree)
		})
	}
}

// away is a backend whose elements links cannot read.
type away struct{ commtest.Memory }

func (away) Host(kernels.Tensor) ([]float32, bool) { return nil, false }
func (away) View([]float32) (kernels.Buffer, bool) { return nil, false }
func (away) Staging() kernels.Backend              { return commtest.Memory{} }

// TestStagedSuite is the conformance suite for tensors that are carried through host
// memory.
func TestStagedSuite(t *testing.T) {
	far := func(int) kernels.Backend { return away{} }
	open := func(t testing.TB, size int) []comm.Communicator {
		comms, err := tcp.Local(context.Background(), size, far, comm.Options{Deadline: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		return comms
	}
	commtest.Run(t, open, far, true)
}

// TestSecureSuite is the conformance suite over connections that are TLS.
func TestSecureSuite(t *testing.T) {
	a := authority.New(t)
	cert, key := a.Issue(time.Now().Add(time.Hour))
	config, err := wire.TLS(cert, key, a.File)
	if err != nil {
		t.Fatal(err)
	}
	open := func(t testing.TB, size int) []comm.Communicator {
		comms, err := engine.Local(context.Background(), size, host, comm.Options{Deadline: 10 * time.Second}, func() (engine.Way, error) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			w := tcp.Secure(ln, config)
			dial := w.Dial
			w.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
				conn, err := dial(ctx, addr)
				return &begins{Conn: conn, t: t}, err
			}
			return w, err
		})
		if err != nil {
			t.Fatal(err)
		}
		return comms
	}
	commtest.Run(t, open, host, true)
}

// begins is a connection whose first byte is that of a TLS handshake.
type begins struct {
	net.Conn
	t  testing.TB
	as atomic.Bool
}

func (b *begins) Write(p []byte) (int, error) {
	const handshake = 22
	if !b.as.Swap(true) && p[0] != handshake {
		b.t.Errorf("a connection begins with %d", p[0])
	}
	return b.Conn.Write(p)
}
