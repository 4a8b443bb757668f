package shm

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lockstep-ml/lockstep/core/comm/engine"
)

// prefix begins the names of sockets, which are in no file system.
const prefix = "@lockstep-"

// Listen is shared memory, of a rank that listens at a Unix socket.
func Listen() (engine.Way, error) { return ListenOn("") }

// ListenOn is Listen, for ranks that give their hosts names: only those of one name
// reach each other.
func ListenOn(host string) (engine.Way, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id") // other hosts may have its name
	if err != nil {
		return engine.Way{}, fmt.Errorf("shm: which host this is: %w", err)
	}
	here := strings.TrimSpace(string(b)) + " " + host
	name := prefix + rand.Text()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return engine.Way{}, fmt.Errorf("shm: listen: %w", err)
	}
	return engine.Way{Name: Name, Listener: &own{ln}, Addr: name + "/" + here, Link: connect,
		Dial: func(ctx context.Context, addr string) (net.Conn, error) { return dial(ctx, here, addr) }}, nil
}

// dial connects to a rank of this host, by what that says where it is.
func dial(ctx context.Context, here, addr string) (net.Conn, error) {
	name, host, ok := strings.Cut(addr, "/")
	if !ok || host != here || !strings.HasPrefix(name, prefix) {
		return nil, fmt.Errorf("%q is on another host than %q", addr, here)
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", name)
	if err != nil {
		return nil, err
	}
	if err := ours(conn); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// own is a listener that takes connections of processes of this one's user alone.
type own struct{ net.Listener }

// Accept implements net.Listener.
func (o *own) Accept() (net.Conn, error) {
	for {
		conn, err := o.Listener.Accept()
		if err != nil || ours(conn) == nil {
			return conn, err
		}
		conn.Close()
	}
}

// ours refuses what is of another user.
func ours(conn net.Conn) error {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	cerr := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err := errors.Join(err, cerr); err != nil {
		return err
	}
	if uid := os.Geteuid(); int(peer.Uid) != uid {
		return fmt.Errorf("a process of user %d, and this one is of user %d", peer.Uid, uid)
	}
	return nil
}

// connect makes a link of a connection.
func connect(ctx context.Context, conn net.Conn, dialed bool) (engine.Link, error) {
	socket, reads, share := conn.(*net.UnixConn), 0, take
	if dialed {
		reads, share = 1, offer
	}
	s, err := share(ctx, socket)
	if err != nil {
		return nil, err
	}
	l, err := newLink(socket, s, reads)
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return l, nil
}
