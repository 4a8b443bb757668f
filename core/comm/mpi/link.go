//go:build mpi

package mpi

import (
	"errors"
	"io"

	"github.com/lockstep-ml/lockstep/core/comm/engine"
)

// slots is how many messages of a link may be under way in one direction.
const slots = 4

// link is an engine.Link: what is written goes in messages, in order, and what is read
// comes of them.
type link struct {
	p    *Process
	from address     // of whoever sends to this side, with its tag
	to   address     // of the other side
	bell engine.Link // the connection over which both sides met
	ends []*slot     // messages of no bytes, at the end

	out struct {
		ring  [slots]*slot
		sizes [slots]int // of messages
		begun int        // messages
		over  int        // messages
		put   int        // bytes of the frame that is being written
	}
	in struct {
		ring [slots]*slot
		over int    // messages that are read to their end
		rest []byte // of the one that is being read
	}
	word []byte // what the other side has said over the connection
	left bool   // it has closed the link: what it has sent before comes yet
	gone error  // why it is, once nothing more comes
}

// open allocates the slots and waits for the first messages.
func (l *link) open() (err error) {
	for i := range slots {
		if l.out.ring[i], err = l.p.newSlot(); err == nil {
			l.in.ring[i], err = l.p.newSlot()
		}
		if err == nil {
			err = l.in.ring[i].receive(l.from)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Polled implements engine.Polled.
func (l *link) Polled() {}

// Write implements engine.Link. A message is written when MPI needs this side for it no
// longer: so whoever has written a frame may stay away.
func (l *link) Write(header, payload []byte, done int) (n int, err error) {
	o := &l.out
	whole := len(header) + len(payload)
	for again := true; again && err == nil; {
		again = false
		if o.put < whole && o.begun-o.over < slots {
			err, again = l.begin(header, payload), true
		}
		for over := true; over && err == nil && o.over < o.begun; {
			if _, over, err = o.ring[o.over%slots].test(); over {
				n += o.sizes[o.over%slots]
				o.over++
				again = true
			}
		}
	}
	if done+n == whole {
		o.put = 0
	}
	if n == 0 && err == nil && l.left {
		err = io.EOF
	} else if n == 0 && err == nil {
		err = l.gone
	}
	return n, err
}

// begin sends the next message of a frame.
func (l *link) begin(header, payload []byte) error {
	o := &l.out
	s, n := o.ring[o.begun%slots], 0
	if o.put < len(header) {
		n = copy(s.data, header[o.put:])
	}
	n += copy(s.data[n:], payload[o.put+n-len(header):])
	o.sizes[o.begun%slots] = n
	o.begun++
	o.put += n
	return s.send(n, l.to)
}

// Read implements engine.Link.
func (l *link) Read(header, payload []byte, done int) (n int, err error) {
	for whole := len(header) + len(payload); done+n < whole; {
		if len(l.in.rest) == 0 {
			if come, err := l.next(); err != nil || !come {
				if n == 0 && err == nil {
					err = l.gone
				}
				return n, err
			}
		}
		at := done + n
		k := 0
		if at < len(header) {
			k = copy(header[at:], l.in.rest)
		} else {
			k = copy(payload[at-len(header):], l.in.rest)
		}
		n += k
		l.in.rest = l.in.rest[k:]
		if len(l.in.rest) > 0 {
			continue
		}
		s := l.in.ring[l.in.over%slots]
		l.in.over++
		if err := s.receive(l.from); err != nil {
			return n, err
		}
	}
	return n, nil
}

// next takes the next message, if it has come. One of no bytes is the last.
func (l *link) next() (come bool, err error) {
	s := l.in.ring[l.in.over%slots]
	n, come, err := s.test()
	switch {
	case come && n > 0:
		l.in.rest = s.data[:n]
	case come && l.gone == nil:
		l.gone = io.EOF
	}
	return come && n > 0, err
}

// Wait implements engine.Link.
func (l *link) Wait(bool, bool) (fd int, events int16, ready bool) {
	if l.left || l.gone != nil {
		return -1, 0, false // its descriptor would end every wait at once
	}
	return l.bell.Wait(true, false)
}

// Waited implements engine.Link: it looks whether the other side is gone. One that has
// closed the link says so over the connection, so that whatever is not said is a process
// that has ended, and nothing more is waited for.
func (l *link) Waited() {
	for !l.left && l.gone == nil {
		var b [16]byte
		n, err := l.bell.Read(nil, b[:], 0)
		l.word = append(l.word, b[:n]...)
		switch {
		case len(l.word) > len(farewell):
			l.gone = engine.Corrupt("a peer says %q over its connection", l.word)
		case errors.Is(err, io.EOF) && string(l.word) == farewell:
			l.left = true
		case err != nil:
			l.gone = err
		case n == 0:
			return
		}
	}
}

// farewell is what a side says over the connection when it closes the link.
const farewell = "."

// Close implements engine.Link. MPI is not asked to forget what the other side waits for
// to come, or has sent: each side ends the waiting of the other, with messages of no
// bytes, the first of which is the end of what it has written.
func (l *link) Close() error {
	for range slots {
		s, err := l.p.newSlot()
		if err != nil {
			break // then some memory is kept
		}
		_ = s.send(0, l.to) // as above
		l.ends = append(l.ends, s)
	}
	_, werr := l.bell.Write(nil, []byte(farewell), 0)
	err := l.bell.Close()
	l.retire()
	return errors.Join(werr, err)
}

// retire gives back what the link has used, some of which MPI may still use.
func (l *link) retire() {
	all := l.ends
	for i := range slots {
		for _, s := range []*slot{l.in.ring[i], l.out.ring[i]} {
			if s != nil {
				all = append(all, s)
			}
		}
	}
	l.p.retire(l.from.tag, all)
}
