package shm

import (
	"context"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// sockets is a connection between two sides of this process.
func sockets(t testing.TB) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		conn, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() }) // or a link has
		ends[i] = conn.(*net.UnixConn)
	}
	return ends[0], ends[1]
}

// pair is both ends of a link: of the side that has dialed, and of the other one.
func pair(t testing.TB) (a, b *link) {
	t.Helper()
	dialed, accepted := sockets(t)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var both errgroup.Group
	for conn, to := range map[*net.UnixConn]**link{dialed: &a, accepted: &b} {
		both.Go(func() error {
			l, err := connect(ctx, conn, conn == dialed)
			if err == nil {
				*to = l.(*link)
			}
			return err
		})
	}
	if err := both.Wait(); err != nil {
		t.Fatal(err)
	}
	return a, b
}

// level is how much this process has of what links take.
type level struct{ descriptors, mappings int }

func levelNow(t testing.TB) level {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return level{len(open), strings.Count(string(maps), "lockstep link")}
}
