//go:build unix

package tcp

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockstep-ml/lockstep/core/comm/engine"
)

// SecureName is what reports call TCP whose connections are TLS.
const SecureName = "TCP with TLS"

// Secure is TCP with TLS, of a rank that listens at ln.
func Secure(ln net.Listener, config *tls.Config) engine.Way {
	w := Way(ln)
	w.Name, w.TLS, w.Link = SecureName, config, func(_ context.Context, conn net.Conn, _ bool) (engine.Link, error) { return seal(conn) }
	return w
}

// sealed is a link over a connection that has no descriptor of its own to read frames
// from: a pair of sockets stands between, and what comes out of the one goes through
// the connection, and the other way round.
type sealed struct {
	engine.Link
	conn net.Conn
	why  atomic.Pointer[error] // the connection ended for, but for its end
}

func seal(conn net.Conn) (engine.Link, error) {
	near, far, err := pair()
	if err != nil {
		return nil, err
	}
	s := &sealed{conn: conn}
	if s.Link, err = engine.Socket(near, nil); err != nil {
		return nil, errors.Join(err, near.Close(), far.Close())
	}
	go func() { // what the peer sent before it went is still read
		s.ended(io.Copy(far, conn))
		_ = far.CloseWrite()
	}()
	go func() {
		s.ended(io.Copy(conn, far))
		_ = conn.Close() // after all that was written
		_ = far.Close()
	}()
	return s, nil
}

// ended notes why one direction has.
func (s *sealed) ended(_ int64, err error) {
	if err != nil {
		s.why.CompareAndSwap(nil, &err)
	}
}

// Read implements engine.Link.
func (s *sealed) Read(header, payload []byte, done int) (int, error) {
	n, err := s.Link.Read(header, payload, done)
	if why := s.why.Load(); errors.Is(err, io.EOF) && why != nil {
		err = *why
	}
	return n, err
}

// lingers is how long what was written may take to go after a link is closed.
const lingers = 5 * time.Second

// Close implements engine.Link.
func (s *sealed) Close() error {
	return errors.Join(s.conn.SetDeadline(time.Now().Add(lingers)), s.Link.Close())
}

// pair is two sockets that are connected.
func pair() (near, far *net.UnixConn, err error) {
	syscall.ForkLock.RLock() // no process that is started meanwhile gets them
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fds[0])
		unix.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		conn, cerr := net.FileConn(f) // on a descriptor of its own, that does not block
		err = errors.Join(err, cerr, f.Close())
		ends[i], _ = conn.(*net.UnixConn)
	}
	if err != nil {
		for _, c := range ends {
			if c != nil {
				_ = c.Close()
			}
		}
		return nil, nil, err
	}
	return ends[0], ends[1], nil
}
