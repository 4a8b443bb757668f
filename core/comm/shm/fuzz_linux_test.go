package shm

import (
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What the bytes of FuzzSegment ask for, one after the other: of a hostile peer, and of
// this side. Each takes the bytes that follow as its arguments.
const (
	fuzzWord   = iota // store a value into a word of a ring: which, a value
	fuzzNear          // the same, a value near what is true: which, a number of lines, of bytes
	fuzzLine          // a line where the reader is next, and head behind it: its mark, a byte of its header
	fuzzBytes         // eight bytes anywhere in the ring that is read: where, what
	fuzzWake          // wake this side
	fuzzGone          // end the connection
	fuzzRead          // go on reading a frame, of a size where it begins
	fuzzLend          // the same, and take the payload where it lies
	fuzzReturn        // give back a loan
	fuzzWrite         // go on writing a frame, of a size where it begins
	fuzzWait          // wait
	fuzzApart         // a line that says where in the peer's arena a payload is: from its end, or anywhere
	fuzzPost          // post a payload, of a size where it begins
	fuzzOwed          // look what is read of that
	fuzzRevoke        // end that
	fuzzOps
)

// program is the bytes that are left.
type program []byte

func (p *program) next() (b byte) {
	if len(*p) > 0 {
		b, *p = (*p)[0], (*p)[1:]
	}
	return b
}

func (p *program) word() uint64 {
	var b [8]byte
	*p = (*p)[copy(b[:], *p):]
	return binary.LittleEndian.Uint64(b[:])
}

// victim is a side of a link, as far as it is with its frames.
type victim struct {
	*link
	header   [headerBytes]byte
	came     int // of the frame that is being read; size is of its payload
	size     int
	lends    bool
	done     int // of the frame that is being written
	sends    int
	payloads []byte
	arena    []byte // what it posts
	posts    int
}

// take goes on reading.
func (v *victim) take(p *program, lends bool) error {
	if v.came == 0 {
		v.size, v.lends = sizes()[int(p.next())%len(sizes())], lends
		v.lends = lends && v.size%4 == 0 && v.Lends(v.size) && len(v.in.loans) < 4
	}
	body := v.payloads[:v.size]
	if v.lends {
		body = nil
	}
	if !v.lends || v.came == 0 {
		n, err := v.Read(v.header[:], body, v.came)
		if n < 0 || v.came+n > headerBytes+len(body) {
			return errors.New("it read more than there is room for")
		}
		if v.came += n; err != nil {
			return nil
		}
	}
	if v.lends && v.came == headerBytes {
		x, ok, err := v.Lend(v.size)
		switch {
		case err != nil || !ok:
			return nil
		case len(x) != v.size/4:
			return errors.New("what is lent is of another length")
		}
		v.came += v.size
		_ = x[0] + x[len(x)-1]
	}
	if v.came >= headerBytes+v.size {
		v.came = 0
	}
	return nil
}

// give goes on writing.
func (v *victim) give(p *program) error {
	if v.done == 0 {
		v.sends = sizes()[int(p.next())%len(sizes())]
	}
	n, _ := v.Write(v.header[:], v.payloads[:v.sends], v.done)
	if v.done += n; n < 0 || v.done > headerBytes+v.sends {
		return errors.New("it wrote more than there is")
	}
	if v.done == headerBytes+v.sends {
		v.done = 0
	}
	return nil
}

// post hands over a payload, unless it is in the middle of another one.
func (v *victim) post(p *program) error {
	if v.done > 0 {
		return nil
	}
	size := sizes()[int(p.next())%len(sizes())]
	n, err := v.Post(v.header[:], v.arena[:size])
	if n != 0 && n != headerBytes+size {
		return errors.New("it posted a part")
	}
	if n > 0 && err == nil {
		v.posts++
	}
	return nil
}

// settle looks what the peer says that it has read.
func (v *victim) settle() error {
	owed, _ := v.Owed()
	if owed < 0 || owed > v.posts {
		return errors.New("it is owed more than it has posted")
	}
	v.posts = owed
	return nil
}

// sound reports what no peer may bring about: that a side believes in more than a ring
// holds, and so reads what is not written, or writes over what is not read.
func (v *victim) sound() error {
	switch r, w := &v.in, &v.out; {
	case r.at-r.freed > RingBytes, r.seen-r.freed > RingBytes:
		return errors.New("it reads beyond its ring")
	case w.at-w.freed > RingBytes && w.at%RingBytes != 0: // at its beginning it has only left out the rest
		return errors.New("it writes beyond its ring")
	}
	return nil
}

// attack does what a hostile peer does; false where this is none of that.
func (v *victim) attack(op byte, p *program, far int) bool {
	words := []interface{ Store(uint64) }{v.in.head, v.in.tail, v.in.headWanted, v.in.tailWanted, v.out.head, v.out.tail, v.out.headWanted, v.out.tailWanted,
		v.in.reach, v.in.torn, v.out.reach, v.out.torn}
	switch op {
	case fuzzWord:
		words[int(p.next())%len(words)].Store(p.word())
	case fuzzNear:
		i, near := int(p.next())%len(words), v.in.at
		if i >= 4 && i < 8 {
			near = v.out.at
		}
		words[i].Store(near + uint64(int64(int8(p.next()))*lineBytes*512) + uint64(int64(int8(p.next()))))
	case fuzzLine:
		at := aligned(v.in.at)
		mark := []uint32{lineFrame, lineSkip, lineApart, 1}[p.next()%4]
		w := &writer{ring: v.in.ring, at: at}
		w.line(mark, 0, []byte{p.next()})
		w.head.Store(at + lineBytes)
	case fuzzApart:
		const few = 4 << 20 // what is read takes memory
		where := p.word()
		switch {
		case where%3 > 0:
			where = arenaBytes - where%few
		case where < arenaBytes:
			where %= few
		}
		at := aligned(v.in.at)
		w := &writer{ring: v.in.ring, at: at}
		w.line(lineApart, where, []byte{p.next()})
		w.head.Store(at + lineBytes)
	case fuzzBytes:
		binary.LittleEndian.PutUint64(v.in.mem[p.word()%RingBytes:], p.word())
	case fuzzWake:
		_, _ = unix.Write(far, []byte{0})
	case fuzzGone:
		_ = unix.Shutdown(far, unix.SHUT_RDWR)
	default:
		return false
	}
	return true
}

// Whatever a peer writes into the segment, at any time, this side reads and writes
// within the rings, ends each call, and at the worst has an error.
func FuzzSegment(f *testing.F) {
	read, write := []byte{fuzzRead, 0}, []byte{fuzzWrite, 0}
	turn := append(binary.LittleEndian.AppendUint64([]byte{fuzzWord, 0}, RingBytes), fuzzRead, 5)
	for _, seed := range [][]byte{
		{fuzzLine, 0, 7, fuzzRead, 0, fuzzWait, fuzzRead, 0},
		{fuzzLine, 1, 0, fuzzRead, 0, fuzzNear, 0, 127, 0, fuzzRead, 0},
		{fuzzLine, 0, 1, fuzzLend, 15, fuzzNear, 0, 64, 0, fuzzLend, fuzzReturn, fuzzWait},
		{fuzzNear, 5, 1, 0, fuzzWrite, 18, fuzzWrite, fuzzNear, 5, 0, 0, fuzzWrite, fuzzWrite},
		{fuzzLine, 3, 0, fuzzRead, 4, fuzzGone, fuzzWait, fuzzRead},
		append([]byte{fuzzLine, 1, 9}, turn...), append(write, read...), turn,
		{fuzzPost, 9, fuzzOwed, fuzzNear, 5, 0, 0, fuzzOwed, fuzzPost, 10, fuzzRevoke, fuzzWait, fuzzOwed},
		append(binary.LittleEndian.AppendUint64([]byte{fuzzApart}, 4), 1, fuzzLend, 10, fuzzWait, fuzzReturn, fuzzRead, 3),
		append(binary.LittleEndian.AppendUint64([]byte{fuzzApart}, 3<<60), 1, fuzzRead, 10, fuzzRead, fuzzWait),
	} {
		f.Add(seed)
	}
	payloads := make([]byte, 2*RingBytes+8)
	x := readable(f).Take(RingBytes)
	mine := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
	f.Fuzz(func(t *testing.T, b []byte) {
		near, far := pair(t)
		defer near.Close()
		defer far.Close()
		v, p := &victim{link: near, payloads: payloads, arena: mine}, program(b[:min(len(b), 512)])
		for len(p) > 0 {
			var err error
			switch op := p.next() % fuzzOps; {
			case v.attack(op, &p, far.fd):
			case op == fuzzReturn && len(v.in.loans) > 0:
				_ = v.Return() // its peer may say that it changes what it has sent
			case op == fuzzRead || op == fuzzLend:
				err = v.take(&p, op == fuzzLend)
			case op == fuzzWrite:
				err = v.give(&p)
			case op == fuzzPost:
				err = v.post(&p)
			case op == fuzzOwed:
				err = v.settle()
			case op == fuzzRevoke:
				v.Revoke()
			case op == fuzzWait:
				v.Wait(true, true)
				v.Waited()
			}
			if err = errors.Join(err, v.sound()); err != nil {
				t.Fatal(err)
			}
		}
		if v.gone != nil && !errors.Is(v.gone, io.EOF) && !errors.Is(v.gone, unix.ECONNRESET) {
			t.Errorf("the peer is gone because %v", v.gone)
		}
	})
}
