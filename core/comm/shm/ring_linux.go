package shm

import (
	"encoding/binary"
	"errors"
	"sync/atomic"
	"unsafe"

	"github.com/lockstep-ml/lockstep/core/comm/engine"
)

// RingBytes is the capacity of a ring, one way of a link: some of the largest pieces that
// are sent.
const RingBytes = 4 << 20

const (
	// controlBytes is where the rings of a segment begin: a page of any system.
	controlBytes = 64 << 10
	segmentBytes = controlBytes + 2*RingBytes
	// lineBytes is what frames begin at multiples of; the first of each line says what
	// follows, the rest holds the frame's header.
	lineBytes   = 64
	apartAt     = 8
	headerAt    = 16
	headerBytes = lineBytes - headerAt
	// stepBytes is after how many bytes the other side may go on with them.
	stepBytes = 256 << 10
)

// What a line begins with.
const (
	lineFrame = 0x6c6b6d31 // a frame's header, and its payload in what follows
	lineSkip  = 0x6c6b6d32 // nothing: go on at the ring's beginning
	lineApart = 0x6c6b6d33 // a frame's header, and where in the writer's arena its payload is
)

// ring is one way of a link as both sides see it. Positions count all bytes since the
// beginning; a position of the ring's memory is one modulo RingBytes.
type ring struct {
	head       *atomic.Uint64 // written up to here; the writer's
	tail       *atomic.Uint64 // not needed any more up to here; the reader's
	headWanted *atomic.Uint64 // the reader waits for head to be here; 0 is no wait
	tailWanted *atomic.Uint64 // the writer waits for tail to be here
	reach      *atomic.Uint64 // 1: the reader reads the writer's arena
	torn       *atomic.Uint64 // 1: what the writer still owes to be there may change
	mem        []byte         // the ring twice in a row, so that nothing is ever cut in two
}

// ringOf is a ring whose words are in control.
func ringOf(control, mem []byte) ring {
	word := func(i int) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&control[128*i])) }
	return ring{head: word(0), tail: word(1), headWanted: word(2), tailWanted: word(3), reach: word(4), torn: word(5), mem: mem}
}

// over reports whether position a has reached b.
func over(a, b uint64) bool { return int64(a-b) >= 0 }

// aligned is the position of the next line.
func aligned(at uint64) uint64 { return (at + lineBytes - 1) / lineBytes * lineBytes }

// turned is the position of the ring's next beginning.
func turned(at uint64) uint64 { return (at/RingBytes + 1) * RingBytes }

// reader is the side of a ring that reads.
type reader struct {
	ring
	at    uint64   // read, or lent, up to here
	freed uint64   // tail
	seen  uint64   // head, when last looked at
	wants uint64   // head must be here for anything to be read
	loans []uint64 // where what is lent begins, the oldest first

	apart bool   // the payload of the frame that is being read is in the peer's arena
	where uint64 // it is there
}

// look reads head, and reports whether all up to a position is there.
func (r *reader) look(to uint64) (bool, error) {
	if over(r.seen, to) {
		return true, nil
	}
	head := r.head.Load()
	if head-r.freed > RingBytes || !over(head, r.seen) {
		return false, engine.Corrupt("it is written up to %d, after %d, and read up to %d of a ring of %d bytes", head, r.seen, r.freed, RingBytes)
	}
	r.seen, r.wants = head, to
	return over(head, to), nil
}

// begin takes the next frame's header, once it is there.
func (r *reader) begin(header []byte) (bool, error) {
	r.at, r.apart = aligned(r.at), false
	for {
		if there, err := r.look(r.at + lineBytes); err != nil || !there {
			return false, err
		}
		var line [lineBytes]byte
		copy(line[:], r.mem[r.at%RingBytes:]) // from here on nobody changes it
		switch mark := binary.NativeEndian.Uint32(line[:]); mark {
		case lineFrame, lineApart:
			copy(header, line[headerAt:])
			r.at += lineBytes
			r.apart, r.where = mark == lineApart, binary.NativeEndian.Uint64(line[apartAt:])
			return true, nil
		case lineSkip:
			to := turned(r.at)
			if !over(r.seen, to) {
				return false, engine.Corrupt("it goes on at %d, and is written up to %d", to, r.seen)
			}
			r.at = to
		default:
			return false, engine.Corrupt("a line begins with %#08x", mark)
		}
	}
}

// copy takes what is there of a payload.
func (r *reader) copy(payload []byte) (n int, err error) {
	for n < len(payload) {
		if there, err := r.look(r.at + 1); err != nil || !there {
			return n, err
		}
		k := min(len(payload)-n, int(r.seen-r.at), stepBytes)
		copy(payload[n:n+k], r.mem[r.at%RingBytes:])
		r.at += uint64(k)
		n += k
	}
	return n, nil
}

// lend takes a payload where it lies, once all of it is there.
func (r *reader) lend(n int) (payload []byte, ok bool, err error) {
	if there, err := r.look(r.at + uint64(n)); err != nil || !there {
		return nil, false, err
	}
	r.loans = append(r.loans, r.at)
	payload = r.mem[r.at%RingBytes:][:n]
	r.at += uint64(n)
	return payload, true, nil
}

// free is how far the writer may go on: up to the oldest loan, or to the line of what
// is not read yet and not in the ring. wake says that it waits for that.
func (r *reader) free() (wake bool) {
	to := r.at
	switch {
	case len(r.loans) > 0:
		to = r.loans[0]
	case r.apart:
		to = r.at - lineBytes
	}
	if to == r.freed {
		return false
	}
	r.freed = to
	r.tail.Store(to)
	return called(r.tailWanted, to)
}

// stayed is nil if all that has been read so far was what the writer meant: it had not
// ended its operation without waiting for that. Add(0) comes after what was read.
func (r *reader) stayed() error {
	if r.torn.Add(0) != 0 {
		return errTorn
	}
	return nil
}

var errTorn = errors.New("its peer has ended an operation before all was read")

// called reports, once, whether the other side waits for a position.
func called(wanted *atomic.Uint64, to uint64) bool {
	w := wanted.Load()
	return w != 0 && over(to, w) && wanted.CompareAndSwap(w, 0)
}

// writer is the side of a ring that writes.
type writer struct {
	ring
	at    uint64   // written up to here
	freed uint64   // tail, when last looked at
	wants uint64   // tail must be here for it to be worth going on
	owed  []uint64 // where tail must be for what is in the arena to be read, the oldest first
}

// look reads tail.
func (w *writer) look() error {
	tail := w.tail.Load()
	if w.at-tail > RingBytes || !over(tail, w.freed) {
		return engine.Corrupt("it is read up to %d, after %d, and written up to %d of a ring of %d bytes", tail, w.freed, w.at, RingBytes)
	}
	w.freed = tail
	return nil
}

// room is how many bytes can be written, at least least if any are to be.
func (w *writer) room(least int) (int, error) {
	if free := RingBytes - int(w.at-w.freed); free >= least {
		return free, nil
	}
	if err := w.look(); err != nil {
		return 0, err
	}
	free := RingBytes - int(w.at-w.freed)
	if free < least {
		w.wants = w.at + uint64(least) - RingBytes
		return 0, nil
	}
	return free, nil
}

// line writes what a line begins with.
func (w *writer) line(mark uint32, where uint64, header []byte) {
	to := w.mem[w.at%RingBytes:]
	binary.NativeEndian.PutUint32(to, mark)
	binary.NativeEndian.PutUint64(to[apartAt:], where)
	copy(to[headerAt:lineBytes], header)
}

// begin writes a header, in a line of a kind; not where there is no room for it.
func (w *writer) begin(mark uint32, where uint64, header []byte) (bool, error) {
	free, err := w.room(lineBytes)
	if err != nil || free == 0 {
		return false, err
	}
	// What is empty begins anew, and so stays in few pages.
	if w.at%RingBytes >= RingBytes/8 && w.at == w.tail.Load() {
		w.line(lineSkip, 0, nil)
		w.at = turned(w.at)
		return w.begin(mark, where, header)
	}
	w.line(mark, where, header)
	w.at += lineBytes
	return true, nil
}

// publish says how far it is written. wake says that the reader waits for that.
func (w *writer) publish(last bool) (wake bool) {
	if last {
		w.at = aligned(w.at)
	}
	w.head.Store(w.at)
	return called(w.headWanted, w.at)
}
