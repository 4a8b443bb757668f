//go:build unix

package tcp

import (
	"context"
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/comm/engine"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Name is what reports call TCP.
const Name = "TCP"

// Way is TCP, of a rank that listens at ln.
func Way(ln net.Listener) engine.Way {
	var d net.Dialer
	return engine.Way{Name: Name, Listener: ln,
		Dial: func(ctx context.Context, addr string) (net.Conn, error) { return d.DialContext(ctx, "tcp", addr) },
		Link: func(_ context.Context, conn net.Conn, _ bool) (engine.Link, error) {
			return engine.Socket(conn, func(fd int) { tune(fd, conn) })
		}}
}

// Listen is TCP, of a rank that listens at an address: "127.0.0.1:0" is any free port
// of the loopback interface.
func Listen(addr string) (engine.Way, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return engine.Way{}, fmt.Errorf("tcp: listen on %s: %w", addr, err)
	}
	return Way(ln), nil
}

// Local is a comm.World whose ranks are goroutines of this process and reach each
// other over its loopback interface.
func Local(ctx context.Context, size int, backend func(rank int) kernels.Backend, o comm.Options) ([]comm.Communicator, error) {
	return engine.Local(ctx, size, backend, o, func() (engine.Way, error) { return Listen("127.0.0.1:0") })
}

// tune sets what a link's socket needs: room for some chunks, and on loopback, where
// nothing is lost, a congestion control that does not pace. Package net has seen to
// it that small frames go at once.
func tune(fd int, conn net.Conn) {
	const room = 4 << 20
	// The system may grant less, or another congestion control: slower, not wrong.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, room)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, room)
	if a, ok := conn.RemoteAddr().(*net.TCPAddr); ok && a.IP.IsLoopback() {
		calm(fd)
	}
}
