package shm

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/comm/commtest"
	"github.com/lockstep-ml/lockstep/core/comm/engine"
	"github.com/lockstep-ml/lockstep/kernels"
)

// hostile is a link whose side, after some frames, writes into the segment what its
// peer cannot go on with.
type hostile struct {
	*link
	attack
	left *atomic.Int64 // frames, of all of the rank's links
}

type attack struct {
	do    func(l *link, header []byte) // instead of a frame; no other follows
	reads func(l *link)                // after each time that it has read; it goes on
}

func (h *hostile) Write(header, payload []byte, done int) (int, error) {
	if done == 0 && h.left.Add(-1) < 0 && h.do != nil {
		if h.left.Load() == -1 {
			h.do(h.link, header)
			_, _ = unix.Write(h.fd, []byte{0}) // its peer looks
		}
		return 0, nil
	}
	return h.link.Write(header, payload, done)
}

func (h *hostile) Post(header, payload []byte) (int, error) {
	if h.do != nil && h.left.Load() <= 0 {
		return 0, nil // it is Write that attacks
	}
	n, err := h.link.Post(header, payload)
	if n > 0 {
		h.left.Add(-1)
	}
	return n, err
}

func (h *hostile) Read(header, payload []byte, done int) (int, error) {
	n, err := h.link.Read(header, payload, done)
	if h.left.Load() < 0 && h.reads != nil {
		h.reads(h.link)
	}
	return n, err
}

// line publishes a line of a kind.
func (l *link) line(mark uint32, header []byte) { l.lineAt(mark, 0, header) }

// lineAt is line with a place in this side's arena.
func (l *link) lineAt(mark uint32, where uint64, header []byte) {
	w := &l.out
	w.line(mark, where, header)
	w.at += lineBytes
	w.head.Store(w.at)
}

// changed is a frame's header with another value, and a sum that fits.
func changed(header []byte, at int, value uint64) []byte {
	out := append([]byte(nil), header...)
	binary.LittleEndian.PutUint64(out[at:], value)
	binary.LittleEndian.PutUint32(out[44:], crc32.Checksum(out[:44], crc32.MakeTable(crc32.Castagnoli)))
	return out
}

const lengthAt = 32 // of a frame's header

// attackOf is an attack and what comes of it.
type attackOf struct {
	name string
	attack
	is   error
	says string // by all ranks
}

// apartAttacks are what a rank does to others that read its tensors where they lie.
var apartAttacks = []attackOf{
	{"a payload where there is none", attack{do: func(l *link, header []byte) { l.lineAt(lineApart, arenaBytes-4, header) }}, comm.ErrCorrupt, "lies at"},
	{"a payload at the end of all", attack{do: func(l *link, header []byte) { l.lineAt(lineApart, math.MaxUint64-3, header) }}, comm.ErrCorrupt, "lies at 18446744073709551612"},
	{"a payload between elements", attack{do: func(l *link, header []byte) { l.lineAt(lineApart, 6, header) }}, comm.ErrCorrupt, "lies at 6"},
	{"an endless payload elsewhere", attack{do: func(l *link, header []byte) { l.lineAt(lineApart, 0, changed(header, lengthAt, math.MaxUint64)) }}, comm.ErrCorrupt, "a piece of 18446744073709551615 bytes came"},
	{"what it takes back", attack{do: func(l *link, header []byte) {
		l.Revoke()
		l.lineAt(lineApart, 0, header)
	}}, comm.ErrLost, "its peer has ended an operation before all was read"},
	{"nothing of its own", attack{do: func(*link, []byte) {}}, comm.ErrDeadline, "rank 1"},
	{"reads more of it than there is", attack{reads: func(l *link) { l.in.tail.Add(RingBytes) }}, comm.ErrCorrupt, "it is read up to"},
	{"reads less of it than before", attack{reads: func(l *link) {
		if l.in.at > 4*lineBytes {
			l.in.tail.Store(0)
		}
	}}, comm.ErrCorrupt, "it is read up to 0"},
}

// attacks are what a rank does to the others.
var attacks = []attackOf{
	{"a line of garbage", attack{do: func(l *link, header []byte) { l.line(0xdeadbeef, header) }}, comm.ErrCorrupt, "a line begins with 0xdeadbeef"},
	{"a line of nothing", attack{do: func(l *link, _ []byte) { l.line(0, nil) }}, comm.ErrCorrupt, "a line begins with 0x00000000"},
	{"more than a ring holds", attack{do: func(l *link, _ []byte) { l.out.head.Add(RingBytes + lineBytes) }}, comm.ErrCorrupt, "of a ring of"},
	{"as much as can be said", attack{do: func(l *link, _ []byte) { l.out.head.Store(math.MaxUint64) }}, comm.ErrCorrupt, "it is written up to 18446744073709551615"},
	{"the half of all numbers", attack{do: func(l *link, _ []byte) { l.out.head.Add(1 << 63) }}, comm.ErrCorrupt, "it is written up to"},
	{"less than before", attack{do: func(l *link, _ []byte) { l.out.head.Store(0) }}, comm.ErrCorrupt, "it is written up to"},
	{"a turn to what is not written", attack{do: func(l *link, _ []byte) { l.line(lineSkip, nil) }}, comm.ErrCorrupt, "it goes on at"},
	{"a header of garbage", attack{do: func(l *link, _ []byte) { l.line(lineFrame, []byte("GET / HTTP/1.1")) }}, comm.ErrCorrupt, "a frame begins with"},
	{"a header that has changed", attack{do: func(l *link, header []byte) {
		header[8]++
		l.line(lineFrame, header)
		header[8]--
	}}, comm.ErrCorrupt, "CRC-32C of a frame's header"},
	{"a payload that is longer", attack{do: func(l *link, header []byte) { l.line(lineFrame, changed(header, lengthAt, 1<<40)) }}, comm.ErrCorrupt, "a piece of 1099511627776 bytes came"},
	{"a payload that is endless", attack{do: func(l *link, header []byte) { l.line(lineFrame, changed(header, lengthAt, math.MaxUint64)) }}, comm.ErrCorrupt, "a piece of 18446744073709551615 bytes came"},
	{"reads more than was written", attack{reads: func(l *link) { l.in.tail.Add(3 * RingBytes) }}, comm.ErrCorrupt, "it is read up to"},
	{"reads less than before", attack{reads: func(l *link) {
		if l.in.at > 2*RingBytes { // before, it could be slow
			l.in.tail.Store(0)
		}
	}}, comm.ErrCorrupt, "it is read up to 0"},
	{"half a frame", attack{do: func(l *link, header []byte) {
		l.line(lineFrame, header)
		l.out.head.Add(7)
	}}, comm.ErrDeadline, "rank 1"},
	{"nothing", attack{do: func(*link, []byte) {}}, comm.ErrDeadline, "rank 1"},
	{"waits for what never comes", attack{do: func(l *link, _ []byte) {
		l.in.headWanted.Store(1 << 63)
		l.out.tailWanted.Store(math.MaxUint64)
	}}, comm.ErrDeadline, "rank 1"},
}

// Whatever a rank writes into what it shares with others, all end with an error that
// names the link, or, where it only keeps silent, with the deadline.
func TestHostileRank(t *testing.T) {
	pool := readable(t)
	for i, x := range slices.Concat(attacks, apartAttacks) {
		var be kernels.Backend = commtest.Memory{}
		if i >= len(attacks) {
			be = InArena(pool)
		}
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			patience := time.Minute // what is wrong is seen, not waited for
			if x.is == comm.ErrDeadline {
				patience = time.Second
			}
			errs := attacked(t, be, x.attack, patience)
			for r, err := range errs {
				var e *comm.Error
				if !errors.As(err, &e) || !errors.Is(err, x.is) || !strings.Contains(err.Error(), x.says) {
					t.Errorf("rank %d: %v, want %v, %q", r, err, x.is, x.says)
				} else if x.is == comm.ErrCorrupt && (e.Peer != 1 || !strings.Contains(err.Error(), "link from rank 1")) {
					t.Errorf("rank %d: %v does not name the link", r, err)
				}
			}
		})
	}
}

// attacked has three ranks reduce until they fail, of which rank 1 does something after
// a while. It gives the error of each.
func attacked(t *testing.T, be kernels.Backend, how attack, patience time.Duration) []error {
	const size, elements = 3, 1 << 17 // a ring is never full
	left := &atomic.Int64{}
	left.Store(50)
	ends := joined(t, size, be, patience, func(l *link) engine.Link { return &hostile{l, how, left} })
	errs := make([]error, size)
	var all sync.WaitGroup
	for r, c := range ends {
		all.Go(func() {
			defer c.Close()
			buf, err := be.Alloc(elements)
			if err == nil {
				defer be.Free(buf)
			}
			for errs[r] = err; errs[r] == nil; {
				errs[r] = c.AllReduce(t.Context(), kernels.Flat(buf), kernels.Max)
			}
		})
	}
	all.Wait()
	return errs
}

// A peer that wakes this side without end does not keep it from looking at the time: a
// little of that is read at a time. All of it is in the end.
func TestEndlessWaking(t *testing.T) {
	a, b := pair(t)
	defer a.Close()
	defer b.Close()
	for {
		if _, err := unix.Write(b.fd, make([]byte, 1<<12)); err != nil {
			break
		}
	}
	waiting := func() int {
		n, err := unix.IoctlGetInt(a.fd, unix.TIOCINQ)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for n := waiting(); n > 0; {
		a.Wait(true, true)
		a.Waited()
		left := waiting()
		if took := n - left; took < 1 || took > 1<<13 {
			t.Fatalf("%d of %d bytes were read at once", took, n)
		}
		n = left
	}
}

// A peer to which nothing was handed over is not believed that it has read anything of it,
// and one that says where memory is that it has not handed over is not read.
func TestNothingToRead(t *testing.T) {
	near, far := pair(t)
	defer near.Close()
	defer far.Close()
	if near.seg.peer != nil { // of the arena of another test
		if err := near.seg.peer.drop(); err != nil {
			t.Fatal(err)
		}
		near.seg.peer = nil
	}
	header, payload := make([]byte, headerBytes), make([]byte, 64)
	far.lineAt(lineApart, 0, header)
	if n, err := near.Read(header, payload, 0); err == nil || n != headerBytes || !strings.Contains(err.Error(), "memory of 0 bytes") {
		t.Errorf("%d bytes of a payload came: %v", n, err)
	}
}

// late is a link that reads nothing once it is told not to, until it may.
type late struct {
	*link
	from *atomic.Int64 // frames that are still read
	may  <-chan struct{}
}

func (l *late) Read(header, payload []byte, done int) (int, error) {
	if l.from.Add(-1) < 0 {
		<-l.may
	}
	return l.link.Read(header, payload, done)
}

// A rank that stops while a peer is still to read its tensors may do with these what it
// wants: what the peer reads then is not taken for what was sent.
func TestWhatIsSentAndChanged(t *testing.T) {
	pool := readable(t)
	for _, copied := range []bool{false, true} {
		var be kernels.Backend = InArena(pool)
		if copied {
			be = struct{ kernels.Backend }{be} // lends nothing
		}
		may, left := make(chan struct{}), &atomic.Int64{}
		left.Store(math.MaxInt32)
		ends := lateWorld(t, be, left, may)
		buf, err := be.Alloc(1 << 18)
		if err != nil {
			t.Fatal(err)
		}
		mine := kernels.Flat(buf)
		got := make(chan error)
		go func() {
			defer ends[1].Close()
			into, err := be.Alloc(1 << 18)
			if err != nil {
				got <- err
				return
			}
			defer be.Free(into)
			if err := ends[1].Barrier(t.Context()); err != nil {
				got <- err
				return
			}
			left.Store(0)
			got <- ends[1].Broadcast(t.Context(), kernels.Flat(into), 0)
		}()
		if err := ends[0].Barrier(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if err := ends[0].Broadcast(ctx, mine, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("who stops has %v", err)
		}
		stop()
		be.Free(buf)
		close(may)
		if err := <-got; !errors.Is(err, comm.ErrLost) && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("who reads what has changed has %v", err)
		}
		ends[0].Close()
	}
}

// lateWorld is a world of two ranks of which rank 1 may be late with reading.
func lateWorld(t *testing.T, be kernels.Backend, from *atomic.Int64, may <-chan struct{}) []comm.Communicator {
	return joined(t, 2, be, time.Minute, func(l *link) engine.Link { return &late{l, from, may} })
}

// joined is a world of which rank 1 makes other links of its own.
func joined(t *testing.T, size int, be kernels.Backend, patience time.Duration, other func(*link) engine.Link) []comm.Communicator {
	configs, err := engine.Listen(size, func() ([]engine.Way, error) {
		w, err := Listen()
		return []engine.Way{w}, err
	})
	if err != nil {
		t.Fatal(err)
	}
	for r := range configs {
		c := &configs[r]
		c.Rank, c.Size, c.Coordinator, c.Run, c.Options = r, size, configs[0].Addr(), t.Name(), comm.Options{Deadline: patience}
	}
	configs[1].Ways[0].Link = func(ctx context.Context, conn net.Conn, dialed bool) (engine.Link, error) {
		l, err := connect(ctx, conn, dialed)
		if err != nil {
			return nil, err
		}
		return other(l.(*link)), nil
	}
	ends, err := engine.JoinAll(t.Context(), configs, func(int) kernels.Backend { return be })
	if err != nil {
		t.Fatal(err)
	}
	return ends
}
