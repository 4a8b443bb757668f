//go:build unix

package engine

import (
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// waker ends a wait in poll: a pipe that somebody writes to. The zero value has none
// yet: a group that never waits needs none.
type waker struct {
	waits   atomic.Bool
	read    *os.File
	raw     int // the descriptor of read
	written atomic.Pointer[os.File]
}

// fd is the descriptor to poll.
func (w *waker) fd() int { return w.raw }

// open makes the pipe.
func (w *waker) open() error {
	if w.read != nil {
		return nil
	}
	r, wr, err := os.Pipe()
	if err != nil {
		return err
	}
	raw, err := r.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { w.raw = int(fd) })
	}
	if err != nil {
		r.Close()
		wr.Close()
		return err
	}
	w.read = r
	w.written.Store(wr)
	return nil
}

// wake ends a wait that is or is about to begin.
func (w *waker) wake() {
	if f := w.written.Load(); f != nil && w.waits.Load() {
		_, _ = f.Write([]byte{0}) // a full pipe wakes as well
	}
}

// drain forgets who has waked.
func (w *waker) drain(fd int) {
	var b [64]byte
	for {
		if n, err := unix.Read(fd, b[:]); n < len(b) || err != nil {
			return
		}
	}
}

// close closes the pipe.
func (w *waker) close() {
	if f := w.written.Swap(nil); f != nil {
		f.Close()
		w.read.Close()
		w.read = nil
	}
}
