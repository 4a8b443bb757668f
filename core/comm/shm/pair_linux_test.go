package shm

import (
	"context"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/comm/commtest"
	"github.com/lockstep-ml/lockstep/core/comm/engine"
	"github.com/lockstep-ml/lockstep/kernels"
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

// readable is memory of this process that its peers can read, from then on.
func readable(t testing.TB) kernels.Pool {
	t.Helper()
	pool, err := Memory()
	if err != nil {
		t.Fatal(err)
	}
	return pool
}

// InArena is a backend whose tensors lie in a pool: all of them.
func InArena(p kernels.Pool) kernels.Backend { return &inArena{pool: p} }

type inArena struct {
	commtest.Memory
	pool kernels.Pool
}

func (b *inArena) Alloc(n int) (kernels.Buffer, error) {
	if n < 0 {
		return b.Memory.Alloc(n)
	}
	buf, _ := b.View(b.pool.Take(max(n, leastTaken/4))[:n])
	return buf, nil
}

func (b *inArena) Free(buf kernels.Buffer) {
	if x, ok := b.Host(kernels.Flat(buf)); ok && len(x) > 0 {
		b.pool.Give(x) // as many pages as were taken
	}
}

// Posted is a comm.World whose ranks post all that lies in their arena, with sums or
// without, and count what they have posted.
func Posted(checksum bool, posts *atomic.Int64) comm.World {
	return func(ctx context.Context, size int, be func(int) kernels.Backend, o comm.Options) ([]comm.Communicator, error) {
		configs, err := engine.Listen(size, func() ([]engine.Way, error) {
			w, err := Listen()
			w.Link = func(ctx context.Context, conn net.Conn, dialed bool) (engine.Link, error) {
				l, err := connect(ctx, conn, dialed)
				if err != nil {
					return nil, err
				}
				l.(*link).least = 1
				return &counted{l.(*link), posts}, nil
			}
			return []engine.Way{w}, err
		})
		if err != nil {
			return nil, err
		}
		for r := range configs {
			c := &configs[r]
			c.Rank, c.Size, c.Coordinator, c.Run, c.Checksum, c.Options = r, size, configs[0].Addr(), "posted", checksum, o
		}
		return engine.JoinAll(ctx, configs, be)
	}
}

type counted struct {
	*link
	posts *atomic.Int64
}

func (c *counted) Post(header, payload []byte) (int, error) {
	n, err := c.link.Post(header, payload)
	if n > 0 {
		c.posts.Add(1)
	}
	return n, err
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
	return level{len(open), strings.Count(string(maps), "memfd:lockstep")}
}
