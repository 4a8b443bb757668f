//go:build unix

package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// spins is how often an exchange lets others run before it waits in the kernel: what
// comes at once is there by then.
const spins = 10

// crowd is how long another thread may keep the processor before it is none of a rank
// that also waits, which would give it back; alone is how many waits go by until it is
// tried again.
const (
	crowd = 500 * time.Microsecond
	alone = 200
)

// pause lets others run, the idle-th time in a row; false where others are known to keep
// the processor: who waits in the kernel gets it back sooner. Goroutines of this process
// are let run once, as that may wake threads that find nothing to do.
func (e *end) pause(idle int) bool {
	if idle == spins/2 || e.crowded > 0 {
		runtime.Gosched()
	}
	if e.crowded > 0 {
		e.crowded--
		return false
	}
	begun := time.Now()
	if yield(); time.Since(begun) > crowd {
		e.crowded = alone
	}
	return true
}

// wait blocks until a lane can go on, somebody wakes this rank, or a while is over: a
// short one where a lane is polled.
func (x *exchange) wait(ctx context.Context, atMost, waited time.Duration) error {
	e := x.e
	if err := e.waker.open(); err != nil {
		return err
	}
	raw := e.waker.fd()
	e.waker.waits.Store(true)
	defer e.waker.waits.Store(false)
	stop := context.AfterFunc(ctx, e.waker.wake)
	defer stop()
	if e.n.broken.Load() || ctx.Err() != nil {
		return nil
	}
	fds := append(e.fds[:0], unix.PollFd{Fd: int32(raw), Events: unix.POLLIN})
	for i := range x.lanes {
		l := &x.lanes[i]
		write := l.sent < len(l.out) && open(l.out[l.sent].gate, l.out[l.sent].need)
		read := l.came < len(l.in) && (l.reading || open(l.in[l.came].gate, l.in[l.came].need))
		if !read && !write && l.owed == 0 {
			continue
		}
		fd, events, ready := l.link.Wait(read, write)
		defer l.link.Waited()
		fds = append(fds, unix.PollFd{Fd: int32(fd), Events: events})
		if ready {
			atMost = 0
		}
		if _, polled := l.link.Link.(Polled); polled {
			atMost = min(atMost, nap(waited))
		}
	}
	e.fds = fds
	// A second at most: whoever is late with a wake-up costs no more.
	if err := poll(fds, min(atMost, time.Second)); err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("poll: %w", err)
	}
	if fds[0].Revents != 0 {
		e.waker.drain(raw)
	}
	return nil
}

// nap is how long a rank that has waited for a while sleeps before it looks again for
// what no descriptor tells it of: what comes soon is not kept for long, and who waits
// long leaves the processor to others.
func nap(waited time.Duration) time.Duration {
	return min(max(waited/4, 20*time.Microsecond), time.Millisecond)
}
