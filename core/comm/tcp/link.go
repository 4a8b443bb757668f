//go:build unix

package tcp

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"golang.org/x/sys/unix"
)

// link is a connection to one peer for one group. One goroutine at a time uses it: the
// one that is in an operation of the group.
//
// It is read and written through its descriptor, without a goroutine for each: an
// exchange watches all of its links at once, and a wake-up through the scheduler for
// each would cost more than small messages do. The net.Conn owns the descriptor.
type link struct {
	conn net.Conn
	fd   int
	peer int // in the world

	mu     sync.Mutex
	closed bool

	// Of the frame that is being written and the one that is being read.
	out struct {
		header [headerBytes]byte
		done   int // bytes of header and payload
		open   bool
	}
	in struct {
		header [headerBytes]byte
		done   int
	}
}

// newLink takes over a connection.
func newLink(conn *net.TCPConn, peer int) (*link, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	l := &link{conn: conn, peer: peer}
	err = raw.Control(func(fd uintptr) { l.fd = int(fd) })
	if err == nil {
		err = tune(l.fd, conn)
	}
	return l, err
}

// close ends the link. No operation may use it any more.
func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		l.conn.Close()
	}
}

// write goes on writing a frame; done says that all of it is written.
func (l *link) write(f *frame, payload []byte) (progress, done bool, err error) {
	if !l.out.open {
		f.put(&l.out.header)
		l.out.done, l.out.open = 0, true
	}
	var parts [2][]byte
	n := remaining(&parts, l.out.header[:], payload, l.out.done)
	wrote, err := unix.Writev(l.fd, parts[:n])
	if again(err) {
		return false, false, nil
	}
	if err != nil {
		return false, false, err
	}
	l.out.done += wrote
	done = l.out.done == headerBytes+len(payload)
	l.out.open = !done
	return true, done, nil
}

// read goes on reading a header and, straight behind it, a payload of a known length;
// done says that both are there.
func (l *link) read(payload []byte) (progress, done bool, err error) {
	var parts [2][]byte
	n := remaining(&parts, l.in.header[:], payload, l.in.done)
	got, err := unix.Readv(l.fd, parts[:n])
	if again(err) {
		return false, false, nil
	}
	if err != nil {
		return false, false, err
	}
	if got == 0 {
		return false, false, io.EOF
	}
	l.in.done += got
	return true, l.in.done == headerBytes+len(payload), nil
}

// remaining lists what is left of a header and a payload after done bytes.
func remaining(parts *[2][]byte, header, payload []byte, done int) (n int) {
	if done < headerBytes {
		parts[n] = header[done:]
		n++
		done = headerBytes
	}
	if rest := payload[done-headerBytes:]; len(rest) > 0 {
		parts[n] = rest
		n++
	}
	return n
}

// again reports an error that says that nothing can be done now.
func again(err error) bool {
	return errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR)
}

// tune sets what a link's socket needs: no delay of small frames, room for some
// chunks, and on loopback, where nothing is lost, a congestion control that does not
// pace.
func tune(fd int, conn *net.TCPConn) error {
	if err := conn.SetNoDelay(true); err != nil {
		return fmt.Errorf("set TCP_NODELAY: %w", err)
	}
	const room = 4 << 20
	// The system may grant less, or another congestion control: slower, not wrong.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, room)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, room)
	if a, ok := conn.RemoteAddr().(*net.TCPAddr); ok && a.IP.IsLoopback() {
		calm(fd)
	}
	return nil
}
