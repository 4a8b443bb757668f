//go:build unix

package engine

import (
	"bytes"
	"context"
	"errors"
	"math"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/comm/commtest"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
)

// through opens a world over sockets, with every link of a rank inside another one.
func through(t *testing.T, size, rank int, o comm.Options, wrap func(Link) Link) []comm.Communicator {
	t.Helper()
	configs, err := Listen(size, func() ([]Way, error) {
		w, err := sockets("127.0.0.1:0")
		return []Way{w}, err
	})
	if err != nil {
		t.Fatal(err)
	}
	for r := range configs {
		c := &configs[r]
		c.Rank, c.Size, c.Coordinator, c.Run, c.Checksum, c.Options = r, size, configs[0].Addr(), t.Name(), true, o
	}
	plain := configs[rank].Ways[0].Link
	configs[rank].Ways[0].Link = func(ctx context.Context, conn net.Conn, dialed bool) (Link, error) {
		l, err := plain(ctx, conn, dialed)
		if err != nil {
			return nil, err
		}
		return wrap(l), nil
	}
	ends, err := JoinAll(t.Context(), configs, host)
	if err != nil {
		t.Fatal(err)
	}
	return ends
}

// each runs f on all ranks at once, until it ends there, and gives their errors.
func each(ends []comm.Communicator, f func(c comm.Communicator) error) []error {
	errs := make([]error, len(ends))
	var all sync.WaitGroup
	for r, c := range ends {
		all.Go(func() {
			defer c.Close()
			errs[r] = f(c)
		})
	}
	all.Wait()
	return errs
}

// filled is n elements with a value.
func filled(n int, v float32) kernels.Tensor {
	m := commtest.Memory{}
	buf, err := m.Alloc(n)
	if err != nil {
		panic(err) // the host is out of memory
	}
	m.Write(kernels.Flat(buf), bytes1(n, v))
	return kernels.Flat(buf)
}

// bent is a link that writes other headers than it is given, of frames after some.
type bent struct {
	Link
	bend   func(*frame)
	frames *atomic.Int64 // of the rank's links, until then
	header []byte        // of the frame that is being written
}

func (b *bent) Write(header, payload []byte, done int) (int, error) {
	if done == 0 {
		b.header = bytes.Clone(header)
		if b.frames.Add(-1) < 0 {
			var f frame
			if err := f.get((*[headerBytes]byte)(b.header)); err != nil {
				return 0, err
			}
			b.bend(&f)
			f.put((*[headerBytes]byte)(b.header))
		}
	}
	return b.Link.Write(b.header, payload, done)
}

// The operations of TestFramesThatDoNotFit, on ranks that have done others before.
var (
	reduces = func(c comm.Communicator) error {
		return c.AllReduce(context.Background(), filled(3*2*short, 1), kernels.Sum)
	}
	reducesFew = func(c comm.Communicator) error { return c.AllReduce(context.Background(), filled(999, 1), kernels.Sum) }
	gathers    = func(c comm.Communicator) error {
		_, err := c.AllGatherBytes(context.Background(), []byte("what a rank says"))
		return err
	}
	sends = func(c comm.Communicator) error { // the last rank to the first
		switch c.Rank() {
		case 0:
			return c.Recv(context.Background(), filled(999, 0), c.Size()-1)
		case c.Size() - 1:
			return c.Send(context.Background(), filled(999, 1), 0)
		}
		return nil
	}
)

// A frame that is well-formed and not the one that is next ends the operation with an
// error that says so, and nothing of it is taken.
func TestFramesThatDoNotFit(t *testing.T) {
	for _, x := range []struct {
		name string
		do   func(comm.Communicator) error
		bend func(*frame)
		is   error
		says string
	}{
		{"phase", reduces, func(f *frame) { f.phase++ }, comm.ErrCorrupt, "piece 0 of phase 2 came, piece 0 of phase 1 is next"},
		{"index", reduces, func(f *frame) { f.index++ }, comm.ErrCorrupt, "piece 1 of phase 1 came, piece 0 of phase 1 is next"},
		{"too long", reduces, func(f *frame) { f.length += 4 }, comm.ErrCorrupt, "a piece of 32772 bytes came, 32768 are next"},
		{"too short", reduces, func(f *frame) { f.length -= 4 }, comm.ErrCorrupt, "a piece of 32764 bytes came, 32768 are next"},
		{"empty", reduces, func(f *frame) { f.length = 0 }, comm.ErrCorrupt, "a piece of 0 bytes came, 32768 are next"},
		{"endless", reduces, func(f *frame) { f.length = 1<<64 - 1 }, comm.ErrCorrupt, "a piece of 18446744073709551615 bytes came, 32768 are next"},
		{"phase of few", reducesFew, func(f *frame) { f.phase++ }, comm.ErrCorrupt, "piece 0 of phase 2 came, piece 0 of phase 1 is next"},
		{"too long for few", reducesFew, func(f *frame) { f.length += 4 }, comm.ErrCorrupt, "a piece of 4000 bytes came, 3996 are next"},
		{"sum of few", reducesFew, func(f *frame) { f.payload++ }, comm.ErrCorrupt, "they changed on the way"},
		{"another call of few", reducesFew, func(f *frame) { f.call++ }, comm.ErrMismatch, "all-reduce of 999 elements (sum)"},
		{"more than is taken", gathers, func(f *frame) { f.length = maxBytes + 1 }, comm.ErrCorrupt, "a piece of 1073741825 bytes came, at most 1073741824 are taken"},
		{"endless bytes", gathers, func(f *frame) { f.length = 1 << 63 }, comm.ErrCorrupt, "a piece of 9223372036854775808 bytes came, at most"},
		{"sum", reduces, func(f *frame) { f.payload++ }, comm.ErrCorrupt, "they changed on the way"},
		{"sum of bytes", gathers, func(f *frame) { f.payload++ }, comm.ErrCorrupt, "they changed on the way"},
		{"sum of a message", sends, func(f *frame) { f.payload++ }, comm.ErrCorrupt, "they changed on the way"},
		{"message for piece", reduces, func(f *frame) { f.kind = message }, comm.ErrMismatch, "all-reduce of 24576 elements (sum)"},
		{"receipt for message", sends, func(f *frame) { f.kind = receipt }, comm.ErrMismatch, "recv of 999 elements"},
		{"another call", reduces, func(f *frame) { f.call++ }, comm.ErrMismatch, "all-reduce of 24576 elements (sum)"},
		{"another message", sends, func(f *frame) { f.call++ }, comm.ErrMismatch, "999 elements"},
		{"an operation before", reduces, func(f *frame) { f.seq-- }, comm.ErrMismatch, "all-reduce of 24576 elements (sum)"},
		{"an operation after", gathers, func(f *frame) { f.seq++ }, comm.ErrMismatch, "all-gather-bytes"},
		{"a message before", sends, func(f *frame) { f.seq-- }, comm.ErrMismatch, "recv of 999 elements"},
	} {
		t.Run(x.name, func(t *testing.T) {
			frames := &atomic.Int64{}
			frames.Store(1 << 40)
			ends := through(t, 3, 2, comm.Options{Deadline: 20 * time.Second}, func(l Link) Link { return &bent{Link: l, bend: x.bend, frames: frames} })
			var begun sync.WaitGroup
			begun.Add(len(ends))
			errs := each(ends, func(c comm.Communicator) error {
				for _, do := range []func(comm.Communicator) error{reduces, sends, gathers} {
					if err := do(c); err != nil {
						return err
					}
				}
				if c.Rank() == 2 { // what comes is the first that is bent
					frames.Store(0)
				}
				begun.Done()
				begun.Wait()
				if err := x.do(c); err != nil {
					return err
				}
				return c.Barrier(context.Background()) // who has got all hears of it later
			})
			for r, err := range errs {
				var e *comm.Error
				if !errors.As(err, &e) || !errors.Is(err, x.is) || !strings.Contains(err.Error(), x.says) ||
					x.is == comm.ErrCorrupt && (e.Peer != 2 || !strings.Contains(err.Error(), "link from rank 2")) {
					t.Errorf("rank %d: %v, want %v of rank 2, %q", r, err, x.is, x.says)
				}
			}
		})
	}
}

// held is a link that writes nothing for a while, after its first frame.
type held struct {
	Link
	until time.Time
}

func (h *held) Write(header, payload []byte, done int) (int, error) {
	if h.until.IsZero() {
		h.until = time.Now().Add(30 * time.Millisecond)
	}
	if time.Now().Before(h.until) {
		return 0, nil
	}
	return h.Link.Write(header, payload, done)
}

// Many chunks, of which those of one rank come late: what the others have sent by then
// waits for them, and none is overwritten.
func TestChunksWaitForTheLast(t *testing.T) {
	const size = 3
	n := 7*size*chunkOfMany + 5 // more chunks than slots, for every rank
	for _, algo := range []names.Algorithm{names.Tree, names.Star} {
		for _, late := range []int{0, size - 1} {
			ends := through(t, size, late, comm.Options{Algorithm: algo, Deadline: 20 * time.Second}, func(l Link) Link { return &held{Link: l} })
			for r, err := range each(ends, func(c comm.Communicator) error { return sums(c, n) }) {
				if err != nil {
					t.Errorf("%s, rank %d is late, rank %d: %v", algo, late, r, err)
				}
			}
		}
	}
}

// lending is a link that lends what it reads, and makes nothing of it once it is given
// back.
type lending struct {
	Link
	mem  []float32
	read int // payloads
	done int // bytes of the one that is being read
	lent [][]float32
}

const lendingSlots = slots + 1

func (l *lending) Lends(n int) bool { return n > 0 && n <= 4*len(l.mem)/lendingSlots }

func (l *lending) Lend(n int) (x []float32, ok bool, err error) {
	at := l.read % lendingSlots * len(l.mem) / lendingSlots
	slot := l.mem[at : at+n/4]
	k, err := l.Read(make([]byte, headerBytes), unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(slot))), n), headerBytes+l.done)
	if l.done += k; err != nil || l.done < n {
		return nil, false, err
	}
	l.lent = append(l.lent, slot)
	l.read, l.done = l.read+1, 0
	return slot, true, nil
}

func (l *lending) Return() error {
	for i := range l.lent[0] {
		l.lent[0][i] = float32(math.NaN())
	}
	l.lent = l.lent[1:]
	return nil
}

// What is lent is used before it is given back, and all of it is given back.
func TestLoans(t *testing.T) {
	for _, algo := range []names.Algorithm{names.Tree, names.Star} {
		for size := 2; size < 6; size++ {
			var all []*lending
			var mu sync.Mutex
			ends := through(t, size, 0, comm.Options{Algorithm: algo, Deadline: 20 * time.Second}, func(l Link) Link {
				mu.Lock()
				defer mu.Unlock()
				all = append(all, &lending{Link: l, mem: make([]float32, lendingSlots*chunkOfTwo)})
				return all[len(all)-1]
			})
			for r, err := range each(ends, func(c comm.Communicator) error {
				for _, n := range []int{1, 1000, 7*chunkOfTwo + 5, 0, 3} {
					if err := sums(c, n); err != nil {
						return err
					}
				}
				return nil
			}) {
				if err != nil {
					t.Errorf("%s of %d ranks, rank %d: %v", algo, size, r, err)
				}
			}
			lent := 0
			for _, l := range all {
				if lent += l.read; len(l.lent) > 0 {
					t.Errorf("%s of %d ranks: %d payloads are not given back", algo, size, len(l.lent))
				}
			}
			if len(all) != size-1 || lent == 0 {
				t.Errorf("%s of %d ranks: %d links have lent %d payloads", algo, size, len(all), lent)
			}
		}
	}
}

// sums reduces a vector in which every element is another one.
func sums(c comm.Communicator, n int) error {
	x, v := filled(n, 0), make([]float32, n)
	for i := range v {
		v[i] = float32(i%65521) * float32(c.Rank()+1)
	}
	m := commtest.Memory{}
	m.Write(x, v)
	if err := c.AllReduce(context.Background(), x, kernels.Sum); err != nil {
		return err
	}
	if err := m.Read(v, x); err != nil {
		return err
	}
	for i, got := range v {
		if want := float32(i%65521) * float32(c.Size()*(c.Size()+1)/2); got != want {
			return errors.New("a sum is wrong")
		}
	}
	return nil
}

// Who waits in the kernel hears at once that a rank has failed, or has left: not when
// it next looks.
func TestEndsAreHeardAtOnce(t *testing.T) {
	for name, do := range map[string]func(c comm.Communicator) error{
		"failed": func(c comm.Communicator) error {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			return c.Barrier(ctx)
		},
		"left": func(c comm.Communicator) error { return c.Close() },
	} {
		const soon = 400 * time.Millisecond
		took := time.Hour
		for tries := 0; took > soon && tries < 5; tries++ { // the machine may be busy
			took = min(took, heard(t, do))
		}
		if took > soon {
			t.Errorf("that a rank has %s is heard %v later", name, took)
		}
	}
}

// closes is a link that counts how often it is closed.
type closes struct {
	Link
	n int
}

func (c *closes) Close() error {
	c.n++
	return nil
}

// A link that an operation uses is closed when that ends, not before, and once.
func TestLinksInUse(t *testing.T) {
	c := &closes{}
	l := newLink(c, 1, commtest.Memory{})
	if first, second := l.hold(), l.hold(); !first || !second {
		t.Fatal("an open link is not to be had")
	}
	l.drop()
	l.close()
	l.close()
	if c.n != 0 || l.hold() {
		t.Errorf("closed %d times in use, or to be had after that", c.n)
	}
	l.drop()
	l.close()
	if c.n != 1 {
		t.Errorf("closed %d times, want once", c.n)
	}
}

// A link that ends, of a rank that lives, ends the world, and is named.
func TestLinksThatEnd(t *testing.T) {
	ends := through(t, 3, 0, comm.Options{Deadline: 20 * time.Second}, func(l Link) Link { return l })
	var wait sync.WaitGroup
	wait.Add(2)
	errs := each(ends, func(c comm.Communicator) error {
		for range 3 {
			if err := c.Barrier(context.Background()); err != nil {
				return err
			}
		}
		if c.Rank() == 2 {
			for _, l := range c.(*end).links {
				if l != nil {
					l.close()
				}
			}
			wait.Wait()
			return nil
		}
		defer wait.Done()
		return c.Recv(context.Background(), filled(5, 0), 2) // who writes nothing hears of it too
	})
	for r, err := range errs[:2] {
		var e *comm.Error
		if !errors.As(err, &e) || e.Peer != 2 || !errors.Is(err, comm.ErrLost) || !strings.Contains(err.Error(), "link to rank 2") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// A rank that does not come is waited for as long as the deadline says, and is named.
func TestDeadline(t *testing.T) {
	const deadline = 700 * time.Millisecond
	for name, do := range map[string]func(c comm.Communicator) error{
		"barrier":    func(c comm.Communicator) error { return c.Barrier(context.Background()) },
		"all-reduce": reduces,
		"recv":       func(c comm.Communicator) error { return c.Recv(context.Background(), filled(5, 0), 2) },
		"send":       func(c comm.Communicator) error { return c.Send(context.Background(), filled(5, 0), 2) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ends := through(t, 3, 0, comm.Options{Deadline: deadline}, func(l Link) Link { return l })
			var wait sync.WaitGroup
			wait.Add(2)
			errs := each(ends, func(c comm.Communicator) error {
				if err := c.Barrier(context.Background()); err != nil {
					return err
				}
				if c.Rank() == 2 {
					wait.Wait()
					return nil
				}
				defer wait.Done()
				begun := time.Now()
				err := do(c)
				if took := time.Since(begun); took < deadline/2 || took > 10*time.Second { // the other rank's may be over first
					t.Errorf("rank %d has waited %v", c.Rank(), took)
				}
				return err
			})
			for r, err := range errs[:2] {
				if !errors.Is(err, comm.ErrDeadline) || !strings.Contains(err.Error(), "rank 2 did not come to "+name) {
					t.Errorf("rank %d: %v", r, err)
				}
			}
		})
	}
}

// heard is how long two ranks that wait go on after a third does something. It keeps
// its links until they have ended.
func heard(t *testing.T, do func(c comm.Communicator) error) (took time.Duration) {
	ends := through(t, 3, 0, comm.Options{Deadline: 20 * time.Second}, func(l Link) Link { return l })
	var wait sync.WaitGroup
	wait.Add(2)
	errs := each(ends, func(c comm.Communicator) error {
		if err := c.Barrier(context.Background()); err != nil {
			return err
		}
		if c.Rank() < 2 {
			defer wait.Done()
			return c.Barrier(context.Background())
		}
		time.Sleep(patienceOfOne + 100*time.Millisecond) // the others wait for a second from then on
		begun := time.Now()
		err := do(c)
		wait.Wait()
		took = time.Since(begun)
		return err
	})
	if errs[0] == nil || errs[1] == nil {
		t.Errorf("%v", errs)
	}
	return took
}
