//go:build unix

package engine

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"

	"github.com/lockstep-ml/lockstep/kernels"
)

// Way is one way to reach ranks: how connections are made, and what links they become.
type Way struct {
	// Name is what reports call it: "TCP". Two ranks have a way in common where both have
	// one of this name.
	Name string
	// Listener is where this rank listens; the engine closes it.
	Listener net.Listener
	// Addr is what peers dial; "" is the listener's address.
	Addr string
	// TLS, where not nil, is of both sides of each connection.
	TLS *tls.Config
	// Dial connects to what a peer gave as its address.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Link makes a link of a connection over which both sides have shaken hands, one of
	// which has dialed. Neither has sent or received anything since.
	Link func(ctx context.Context, conn net.Conn, dialed bool) (Link, error)
	// Library, where not nil, reduces by itself.
	Library Library
}

// Library has reducers, each with a number that is the same on all ranks.
type Library interface {
	// Take gives the number of one that is free. Rank 0 of a world asks, for all ranks.
	Take() (number int, err error)
	// Reducer is the one of a number, for a group of all ranks of a world: of its links,
	// by rank, this rank's own is nil.
	Reducer(number int, links []Link, rank int) (Reducer, error)
}

// Reducer reduces over the ranks of a group, in an order of its own. Nothing blocks.
type Reducer interface {
	// AllReduce begins to replace x by the reduction over ranks, all of which call it.
	AllReduce(x []float32, op kernels.Op) error
	// Over reports whether x is replaced.
	Over() (bool, error)
	// Close ends it. Where the world is well, and this is rank 0, its number is free.
	Close(well bool)
}

// addr is what peers dial.
func (w *Way) addr() string {
	if w.Addr != "" {
		return w.Addr
	}
	return w.Listener.Addr().String()
}

// Link carries frames to one peer and back, for one group: a header and a payload each.
// One goroutine at a time uses it; no method but Close blocks.
type Link interface {
	// Write goes on with a frame of which done bytes, of the header first, are written,
	// and says how many more are: 0 where nothing can be written now.
	Write(header, payload []byte, done int) (n int, err error)
	// Read goes on with a frame of which done bytes have come. Where the header is to say
	// how long the payload is, that is empty until the header is there. A peer that is
	// gone is io.EOF, once all that it has written is read.
	Read(header, payload []byte, done int) (n int, err error)
	// Wait is called before a wait until something can be read, or written: for events
	// of a descriptor. Where ready, something can be by now. Each Wait is followed by
	// a Waited.
	Wait(read, write bool) (fd int, events int16, ready bool)
	Waited()
	// Close ends the link.
	Close() error
}

// Lender is a Link whose payloads can be read where they lie.
type Lender interface {
	Link
	// Lends reports whether payloads of n bytes are lent.
	Lends(n int) bool
	// Lend gives, once it is there, a payload of n bytes that follows a header which has
	// been read. It is read with that.
	Lend(n int) (x []float32, ok bool, err error)
	// Return gives back the oldest payload that is lent. An error says that it may have
	// changed since.
	Return() error
}

// Poster is a Link whose peer can read payloads where they lie on this side.
type Poster interface {
	Link
	// Post writes a frame, but of its payload only where it is. It gives the length of
	// both; 0 where that cannot be done, or not now, and the frame is to be written.
	Post(header, payload []byte) (n int, err error)
	// Owed is how many payloads the peer has not read yet, or not given back. They must
	// stay as they are. Who waits for that is waked as for what can be written.
	Owed() (int, error)
	// Revoke says that what is owed may change from now on.
	Revoke()
}

// Polled is a Link of which no descriptor says that something can be read, or written:
// who waits for it looks again after a pause.
type Polled interface {
	Link
	Polled()
}

// viewer is a backend whose tensors can lie in memory that it has not allocated. ok is
// false where it has none of float32.
type viewer interface {
	View(x []float32) (buf kernels.Buffer, ok bool)
}

// Corrupt is the error of a link that carries what its peer cannot have meant.
func Corrupt(format string, args ...any) error { return corruption{fmt.Errorf(format, args...)} }

type corruption struct{ error }

// link is a Link with the frames that are under way.
type link struct {
	Link
	peer   int    // in the world
	lender Lender // nil where payloads are not lent
	viewer viewer // of what the lender lends
	poster Poster // nil where all is written

	mu     sync.Mutex
	users  int // operations
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

// newLink takes over a link.
func newLink(made Link, peer int, be kernels.Backend) *link {
	l := &link{Link: made, peer: peer}
	l.poster, _ = made.(Poster)
	lender, lends := made.(Lender)
	if v, views := be.(viewer); lends && views {
		if _, ok := v.View(nil); ok {
			l.lender, l.viewer = lender, v
		}
	}
	return l
}

// hold keeps the link open until drop; false where it is closed.
func (l *link) hold() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.users++
	}
	return !l.closed
}

// drop is the end of a hold.
func (l *link) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users--; l.closed && l.users == 0 {
		_ = l.Close() // whatever it says, it is of no use any more
	}
}

// close ends the link, once no operation uses it any more.
func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed && l.users == 0 {
		_ = l.Close() // as in drop
	}
	l.closed = true
}

// lends reports whether payloads of n elements are lent.
func (l *link) lends(n int) bool { return l.lender != nil && l.lender.Lends(4*n) }

// lend is a payload of n elements where it lies, once it is there.
func (l *link) lend(n int) (t kernels.Tensor, ok bool, err error) {
	x, ok, err := l.lender.Lend(4 * n)
	if ok {
		buf, _ := l.viewer.View(x)
		t = kernels.Flat(buf)
	}
	return t, ok, err
}

// write goes on writing a frame; done says that all of it is written. A payload that
// stays as it is until it is not owed any more may be read where it lies.
func (l *link) write(f *frame, payload []byte, stays bool) (progress, done bool, err error) {
	if !l.out.open {
		f.put(&l.out.header)
		l.out.done, l.out.open = 0, true
	}
	n := 0
	if stays && l.poster != nil && l.out.done == 0 {
		n, err = l.poster.Post(l.out.header[:], payload)
	}
	if n == 0 && err == nil {
		n, err = l.Write(l.out.header[:], payload, l.out.done)
	}
	if err != nil {
		return false, false, err
	}
	l.out.done += n
	done = l.out.done == headerBytes+len(payload)
	l.out.open = !done
	return n > 0, done, nil
}

// owed is how many payloads the peer still reads where they lie.
func (l *link) owed() (int, error) {
	if l.poster == nil {
		return 0, nil
	}
	return l.poster.Owed()
}

// revoke ends what is owed.
func (l *link) revoke() {
	if n, err := l.owed(); n > 0 || err != nil {
		l.poster.Revoke()
	}
}

// read goes on reading a header and, straight behind it, a payload of a known length;
// done says that both are there.
func (l *link) read(payload []byte) (progress, done bool, err error) {
	n, err := l.Read(l.in.header[:], payload, l.in.done)
	if err != nil {
		return false, false, err
	}
	l.in.done += n
	return n > 0, l.in.done == headerBytes+len(payload), nil
}
