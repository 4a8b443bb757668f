//go:build mpi

package mpi

import (
	"encoding/binary"
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

	out struct {
		ring  [slots]*slot
		sizes [slots]int // of messages
		begun int        // messages
		over  int        // messages
		put   int        // bytes of the frame that is being written
		sent  uint64     // bytes, of messages that are over
	}
	in struct {
		ring [slots]*slot
		over int    // messages that are read to their end
		rest []byte // of the one that is being read
		read uint64 // bytes
	}
	word []byte // what the other side has said over the connection
	said int64  // bytes that it has sent in all, -1 where it has not said so
	gone error  // why the other side is
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
	o.sent += uint64(n)
	if done+n == whole {
		o.put = 0
	}
	if n == 0 && err == nil {
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
				return n, errors.Join(err, l.ended(n))
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
		l.in.read += uint64(k)
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

// next takes the next message, if it has come.
func (l *link) next() (come bool, err error) {
	s := l.in.ring[l.in.over%slots]
	n, come, err := s.test()
	if come && n == 0 {
		return false, engine.Corrupt("a message of no bytes came")
	}
	if come {
		l.in.rest = s.data[:n]
	}
	return come, err
}

// ended is why nothing more comes, where nothing has and the other side is gone: not
// before all has come that it said it sent.
func (l *link) ended(n int) error {
	if n > 0 || l.said >= 0 && l.in.read < uint64(l.said) {
		return nil
	}
	return l.gone
}

// Wait implements engine.Link.
func (l *link) Wait(bool, bool) (fd int, events int16, ready bool) {
	if l.gone != nil {
		return -1, 0, false // its descriptor would end every wait at once
	}
	return l.bell.Wait(true, false)
}

// Waited implements engine.Link: it looks whether the other side is gone.
func (l *link) Waited() {
	for l.gone == nil {
		var b [16]byte
		n, err := l.bell.Read(nil, b[:], 0)
		l.word = append(l.word, b[:n]...)
		switch {
		case len(l.word) > wordBytes:
			l.gone = engine.Corrupt("a peer says more over its connection than how much it has sent")
		case err != nil:
			l.gone = err
		case n == 0:
			return
		}
	}
	if errors.Is(l.gone, io.EOF) && len(l.word) == wordBytes && l.said < 0 {
		l.said = int64(binary.LittleEndian.Uint64(l.word))
	}
}

// wordBytes is the length of what a side says at its end: how many bytes it has sent.
const wordBytes = 8

// Close implements engine.Link.
func (l *link) Close() error {
	_, werr := l.bell.Write(nil, binary.LittleEndian.AppendUint64(nil, l.out.sent), 0)
	err := l.bell.Close()
	l.retire()
	return errors.Join(werr, err)
}

// retire gives back what the link has used, some of which MPI may still use.
func (l *link) retire() {
	var all []*slot
	for i := range slots {
		if s := l.in.ring[i]; s != nil {
			_ = s.cancel() // one that has come is over as well
			all = append(all, s)
		}
		if s := l.out.ring[i]; s != nil {
			all = append(all, s)
		}
	}
	l.p.retire(l.from.tag, all)
}
