//go:build unix

package engine

import (
	"errors"
	"io"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// socket is a link over a stream socket. It is read and written through its descriptor,
// without a goroutine: an exchange watches all of its links at once, and a wake-up
// through the scheduler for each would cost more than small messages do.
type socket struct{ fd int }

// Socket makes a link of a connection that is a socket, of TCP or of Unix, and hands
// its descriptor to tune, unless that is nil.
func Socket(conn net.Conn, tune func(fd int)) (Link, error) {
	fd, err := Detach(conn)
	if err != nil {
		return nil, err
	}
	if tune != nil {
		tune(fd)
	}
	return &socket{fd}, nil
}

// Detach gives the socket of a connection, which it closes, to who calls: from then on
// nothing wakes this process's scheduler when something comes.
func Detach(conn net.Conn) (fd int, err error) {
	sys, ok := conn.(syscall.Conn)
	if !ok {
		return -1, errors.New("a link over what is no socket")
	}
	raw, err := sys.SyscallConn()
	if err != nil {
		return -1, err
	}
	cerr := raw.Control(func(old uintptr) { fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) })
	if err := errors.Join(err, cerr); err != nil {
		return -1, err
	}
	return fd, conn.Close() // what it says of one that goes on is that it was closed before
}

// Close implements Link.
func (s *socket) Close() error { return unix.Close(s.fd) }

// Write implements Link.
func (s *socket) Write(header, payload []byte, done int) (int, error) {
	var parts [2][]byte
	return now(writev(s.fd, parts[:remaining(&parts, header, payload, done)]))
}

// Read implements Link.
func (s *socket) Read(header, payload []byte, done int) (int, error) {
	var parts [2][]byte
	n, err := readv(s.fd, parts[:remaining(&parts, header, payload, done)])
	if n == 0 && err == nil {
		return 0, io.EOF
	}
	return now(n, err)
}

// Wait implements Link.
func (s *socket) Wait(read, write bool) (fd int, events int16, ready bool) {
	if read {
		events |= unix.POLLIN
	}
	if write {
		events |= unix.POLLOUT
	}
	return s.fd, events, false
}

// Waited implements Link.
func (s *socket) Waited() {}

// remaining lists what is left of a header and a payload after done bytes.
func remaining(parts *[2][]byte, header, payload []byte, done int) (n int) {
	if done < len(header) {
		parts[n] = header[done:]
		n++
		done = len(header)
	}
	if rest := payload[done-len(header):]; len(rest) > 0 {
		parts[n] = rest
		n++
	}
	return n
}

// now is the outcome of a system call that says at once that nothing can be done.
func now(n int, err error) (int, error) {
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
		return 0, nil
	}
	return n, err
}
