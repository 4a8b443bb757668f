package shm

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/lockstep-ml/lockstep/core/comm/engine"
)

var (
	_ engine.Lender = (*link)(nil)
	_ engine.Poster = (*link)(nil)
)

// link is an engine.Link over a segment.
type link struct {
	fd    int // the socket by which both sides wake each other
	seg   *segment
	in    reader
	out   writer
	full  bool  // out has no room for what goes on
	least int   // the length of payloads that are posted
	gone  error // why the other side is
}

// newLink takes over a connection and a segment, of which this side reads one ring.
func newLink(conn net.Conn, seg *segment, reads int) (*link, error) {
	fd, err := engine.Detach(conn)
	if err != nil {
		return nil, err
	}
	l := &link{fd: fd, seg: seg, in: reader{ring: seg.ring(reads)}, out: writer{ring: seg.ring(1 - reads)}, least: leastPosted}
	if seg.peer != nil {
		l.in.reach.Store(1)
	}
	return l, nil
}

// Write implements engine.Link.
func (l *link) Write(header, payload []byte, done int) (n int, err error) {
	if len(header) != headerBytes {
		return 0, fmt.Errorf("a header of %d bytes, want %d", len(header), headerBytes)
	}
	w := &l.out
	defer func() { l.full = done+n < len(header)+len(payload) }()
	if done == 0 {
		begun, err := w.begin(lineFrame, 0, header)
		if err != nil || !begun {
			return 0, l.over(err)
		}
		if n = len(header); len(payload) == 0 {
			return n, l.wake(w.publish(true))
		}
	}
	for rest := payload[done+n-len(header):]; len(rest) > 0; {
		free, err := w.room(min(len(rest), RingBytes/4))
		if err != nil || free == 0 {
			return n, l.over(errors.Join(err, l.wake(w.publish(false))))
		}
		k := min(len(rest), free, stepBytes)
		copy(w.mem[w.at%RingBytes:], rest[:k])
		w.at += uint64(k)
		n += k
		rest = rest[k:]
		if err := l.wake(w.publish(len(rest) == 0)); err != nil {
			return n, err
		}
	}
	return n, nil
}

// Post implements engine.Poster: for what lies in this process's arena and is long.
func (l *link) Post(header, payload []byte) (n int, err error) {
	if l.seg.mine == nil || len(payload) < l.least || l.out.reach.Load() != 1 {
		return 0, nil
	}
	at, ok := l.seg.mine.offset(payload)
	if !ok {
		return 0, nil
	}
	w := &l.out
	if begun, err := w.begin(lineApart, uint64(at), header); err != nil || !begun {
		return 0, l.over(err)
	}
	l.full = false
	w.owed = append(w.owed, w.at)
	return len(header) + len(payload), l.wake(w.publish(true))
}

// Owed implements engine.Poster.
func (l *link) Owed() (int, error) {
	w := &l.out
	if len(w.owed) == 0 {
		return 0, nil
	}
	if err := w.look(); err != nil {
		return len(w.owed), err
	}
	read := 0
	for read < len(w.owed) && over(w.freed, w.owed[read]) {
		read++
	}
	if w.owed = slices.Delete(w.owed, 0, read); read > 0 || len(w.owed) == 0 {
		return len(w.owed), nil
	}
	return len(w.owed), l.gone
}

// Revoke implements engine.Poster.
func (l *link) Revoke() { l.out.torn.Store(1) }

// Read implements engine.Link.
func (l *link) Read(header, payload []byte, done int) (n int, err error) {
	if len(header) != headerBytes {
		return 0, fmt.Errorf("a header of %d bytes, want %d", len(header), headerBytes)
	}
	r := &l.in
	if done == 0 {
		begun, err := r.begin(header)
		if err != nil || !begun {
			return 0, l.over(err)
		}
		n = len(header)
	}
	rest := payload[done+n-len(header):]
	read := r.copy
	if r.apart && len(rest) > 0 {
		read = l.fetch
	}
	k, err := read(rest)
	n += k
	if err == nil {
		err = l.wake(r.free())
	}
	if n == 0 {
		err = l.over(err)
	}
	return n, err
}

// fetch copies a payload of the peer's arena.
func (l *link) fetch(payload []byte) (n int, err error) {
	from, err := l.seg.peer.part(l.in.where, len(payload))
	if err == nil {
		n, l.in.apart = copy(payload, from), false
		err = l.in.stayed()
	}
	return n, err
}

// Lends implements engine.Lender: pieces of which several have room.
func (l *link) Lends(n int) bool { return n > 0 && n <= RingBytes/4 }

// Lend implements engine.Lender.
func (l *link) Lend(n int) (x []float32, ok bool, err error) {
	var from []byte
	if r := &l.in; r.apart {
		if from, err = l.seg.peer.part(r.where, n); err == nil {
			r.loans, r.apart, ok = append(r.loans, r.at-lineBytes), false, true
		}
	} else if from, ok, err = r.lend(n); !ok {
		err = l.over(err)
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(from))), len(from)/4), ok, err
}

// Return implements engine.Lender.
func (l *link) Return() error {
	l.in.loans = l.in.loans[1:]
	_ = l.wake(l.in.free()) // a peer that is gone is noticed by who waits for it
	return l.in.stayed()
}

// over is the error of what cannot go on: that of the other side's end, where it is
// gone.
func (l *link) over(err error) error {
	if err == nil {
		return l.gone
	}
	return err
}

// wake wakes the other side, if it is to be.
func (l *link) wake(wanted bool) error {
	if !wanted {
		return nil
	}
	_, err := unix.Write(l.fd, []byte{0})
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return nil // a full socket wakes as well; of one that is gone all that it wrote is read first
	}
	return err
}

// Wait implements engine.Link.
func (l *link) Wait(read, write bool) (fd int, events int16, ready bool) {
	if read {
		l.in.headWanted.Store(max(l.in.wants, 1))
		ready = over(l.in.head.Load(), l.in.wants)
	}
	wants := l.out.wants
	if owed := l.out.owed; len(owed) > 0 && !(write && l.full) {
		write, wants = true, owed[len(owed)-1]
	}
	if write {
		l.out.tailWanted.Store(max(wants, 1))
		ready = ready || over(l.out.tail.Load(), wants)
	}
	return l.fd, unix.POLLIN, ready
}

// Waited implements engine.Link.
func (l *link) Waited() {
	l.in.headWanted.Store(0)
	l.out.tailWanted.Store(0)
	var b [64]byte
	for range 64 { // a peer may write without end
		n, err := unix.Read(l.fd, b[:])
		switch {
		case err == nil && n == 0:
			l.gone = io.EOF
		case err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR):
			l.gone = err
		case n == len(b):
			continue
		}
		return
	}
}

// Close implements engine.Link.
func (l *link) Close() error { return errors.Join(unix.Close(l.fd), l.seg.close()) }
