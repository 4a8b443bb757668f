package shm

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/lockstep-ml/lockstep/internal/race"
	"github.com/lockstep-ml/lockstep/kernels"
)

// sizes are of payloads that break things.
func sizes() []int {
	page := os.Getpagesize()
	return []int{0, 1, 3, 4, lineBytes - 1, lineBytes, lineBytes + 1, page - 1, page, page + 1, stepBytes - 1, stepBytes, stepBytes + 1,
		RingBytes/8 - lineBytes, RingBytes/4 - 1, RingBytes / 4, RingBytes/4 + 1, RingBytes - lineBytes, RingBytes - 1, RingBytes, RingBytes + 1, 2*RingBytes + 5}
}

// frame is one that a side sends: its number says what is in it.
type frame struct{ number, size int }

func (f frame) header() []byte {
	return []byte(fmt.Sprintf("%-*d", headerBytes, f.number*31+f.size))
}

// payload repeats what differs from frame to frame, and is nowhere like one a little off.
func (f frame) payload() []byte {
	out := make([]byte, f.size)
	for i := range out {
		out[i] = byte(i>>16 + i>>8*7 + i*13 + f.number*101)
	}
	return out
}

// side is one side of a link in a test, which does what the engine does, step by step.
type side struct {
	*link
	random *rand.Rand
	out    []frame // to send
	in     []frame // to expect
	done   int     // of out[0]
	sends  []byte  // the payload of out[0], once it begins
	came   int     // of in[0]
	header [headerBytes]byte
	body   []byte // of in[0], once it begins
	wants  []byte // what body is to be
	lends  bool
	lent   []loan // not yet returned
	asleep bool
	pool   kernels.Pool // to post from; nil posts nothing
	posted [][]float32  // and not read yet
	posts  int
}

type loan struct{ got, want []byte }

// write goes on with the first frame that is to be sent.
func (s *side) write() (bool, error) {
	if len(s.out) == 0 {
		return false, nil
	}
	f := s.out[0]
	if s.done == 0 {
		s.sends = f.payload()
	}
	n := 0
	var err error
	if s.done == 0 && s.pool != nil && s.random.IntN(2) == 0 {
		n, err = s.post(f)
	}
	if n == 0 && err == nil {
		n, err = s.Write(f.header(), s.sends, s.done)
	}
	if s.done += n; err == nil && s.done == headerBytes+f.size {
		s.out, s.done = s.out[1:], 0
	}
	return n > 0, err
}

// post hands over a frame whose payload lies in this process's arena.
func (s *side) post(f frame) (int, error) {
	x := s.pool.Take(max(f.size/4+1, leastTaken/4))
	b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), f.size)
	copy(b, s.sends)
	n, err := s.Post(f.header(), b)
	if n == 0 {
		s.pool.Give(x)
		return 0, err
	}
	s.posted = append(s.posted, x)
	s.posts++
	return n, err
}

// settle makes nothing of what the peer has read.
func (s *side) settle() (bool, error) {
	owed, err := s.Owed()
	read := len(s.posted) - owed
	for _, x := range s.posted[:read] {
		for i := range x {
			x[i] = -1
		}
		s.pool.Give(x)
	}
	s.posted = s.posted[read:]
	return read > 0, err
}

// read goes on with the first frame that is expected, and judges it.
func (s *side) read() (bool, error) {
	if len(s.in) == 0 {
		return false, nil
	}
	f := s.in[0]
	if s.came == 0 {
		s.wants, s.body = f.payload(), make([]byte, f.size)
		s.lends = f.size%4 == 0 && s.Lends(f.size) && len(s.lent) < 3 && s.random.IntN(2) == 0
	}
	body := s.body
	if s.lends {
		body = nil
	}
	n := 0
	var err error
	if !s.lends || s.came == 0 {
		n, err = s.Read(s.header[:], body, s.came)
		s.came += n
	}
	if err != nil || s.came < headerBytes {
		return n > 0, err
	}
	if want := f.header(); !bytes.Equal(s.header[:], want) {
		return false, fmt.Errorf("header %q came, want %q", s.header, want)
	}
	if s.lends {
		x, ok, err := s.Lend(f.size)
		if err != nil || !ok {
			return n > 0, err
		}
		s.lent = append(s.lent, loan{unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), f.size), s.wants})
	} else if s.came < headerBytes+f.size {
		return n > 0, nil
	} else if !bytes.Equal(s.body, s.wants) {
		return false, fmt.Errorf("payload %d of %d bytes is another one", f.number, f.size)
	}
	s.in, s.came = s.in[1:], 0
	return true, nil
}

// giveBack returns the oldest loan, which must still be what it was.
func (s *side) giveBack() error {
	if l := s.lent[0]; !bytes.Equal(l.got, l.want) {
		return fmt.Errorf("a payload of %d bytes that is lent has changed", len(l.got))
	}
	s.lent = s.lent[1:]
	return s.Return()
}

// turn does what this side can do. A side that can do nothing sleeps until its socket
// says that it can.
func (s *side) turn() (progress bool, err error) {
	if s.asleep {
		fds := []unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}}
		if n, err := unix.Poll(fds, 0); err != nil || n == 0 {
			return false, err
		}
		s.asleep = false
		s.Waited()
	}
	if len(s.lent) > 0 && s.random.IntN(4) == 0 {
		return true, s.giveBack()
	}
	wrote, err := s.write()
	if err != nil {
		return false, err
	}
	read, err := s.read()
	if err == nil && !wrote && !read {
		read, err = s.settle()
	}
	switch {
	case err != nil || wrote || read:
		return true, err
	case len(s.lent) > 0:
		return true, s.giveBack()
	case len(s.in)+len(s.out)+len(s.posted) == 0:
		return false, nil
	}
	if _, _, ready := s.Wait(len(s.in) > 0, len(s.out) > 0); ready {
		s.Waited()
	} else {
		s.asleep = true
	}
	return true, nil
}

// rest lists what sides have not got.
func rest(sides []*side) []frame { return append(slices.Clone(sides[0].in), sides[1].in...) }

// owing counts what is posted and not settled.
func owing(sides []*side) int { return len(sides[0].posted) + len(sides[1].posted) }

// What one side sends the other one gets, bit for bit and in order, whatever lengths
// there are and whoever is ahead; and a side that waits is woken as soon as it can go on.
func TestFrames(t *testing.T) {
	pool := readable(t)
	for _, seed := range race.Some(4, []uint64{0, 1, 2, 3, 4, 5, 6, 7}) {
		a, b := pair(t)
		random := rand.New(rand.NewPCG(seed, 1))
		sides := []*side{{link: a, random: random}, {link: b, random: random}}
		if seed%4 > 0 {
			sides[0].pool, sides[1].pool = pool, pool
		}
		all, left := sizes(), 16<<20
		if seed%3 == 0 {
			all = all[:len(all)-9] // many that are small
		}
		for n := 0; left > 0 && n < 2000; n++ {
			f := frame{n, all[random.IntN(len(all))]}
			from := random.IntN(2)
			if seed%4 == 1 {
				from = 0 // one way alone
			}
			sides[from].out, sides[1-from].in = append(sides[from].out, f), append(sides[1-from].in, f)
			left -= f.size
		}
		for idle := 0; idle < 64 && len(rest(sides))+owing(sides) > 0; idle++ {
			who := random.IntN(2)
			progress, err := sides[who].turn()
			if err != nil {
				t.Fatalf("seed %d, side %d: %v", seed, who, err)
			}
			if progress {
				idle = 0
			}
		}
		if rest := rest(sides); len(rest) > 0 {
			t.Fatalf("seed %d: both sides sleep, and %d frames are to come", seed, len(rest))
		}
		if posts := sides[0].posts + sides[1].posts; (posts > 0) != (seed%4 > 0) || owing(sides) > 0 {
			t.Errorf("seed %d: %d payloads were posted, %d are owed", seed, posts, owing(sides))
		}
		for _, s := range sides {
			for len(s.lent) > 0 {
				if err := s.giveBack(); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Where a side begins to wait just as the other one brings about what it waits for, one
// of them notices. The race detector's own stores are releases, after which a load may
// be done too early: there it is only run, a little.
func TestWaitsAreSeen(t *testing.T) {
	rounds := uint64(250000)
	if race.Enabled {
		rounds = 5000
	}
	a, b := pair(t)
	defer a.Close()
	defer b.Close()
	for what, x := range map[string]struct {
		wait  func(to uint64) (ready bool)
		bring func(to uint64) (wake bool)
	}{
		"to read": {func(to uint64) bool {
			a.in.wants = to
			_, _, ready := a.Wait(true, false)
			return ready
		}, func(to uint64) bool {
			b.out.at = to
			return b.out.publish(false)
		}},
		"to write": {func(to uint64) bool {
			a.out.wants = to
			_, _, ready := a.Wait(false, true)
			return ready
		}, func(to uint64) bool {
			b.in.at = to
			return b.in.free()
		}},
	} {
		var begun, done atomic.Uint64 // rounds, of the side that brings it about
		var over atomic.Bool
		var wakes bool
		go func() {
			for n := uint64(1); ; n++ {
				for begun.Load() < n {
					if runtime.Gosched(); over.Load() {
						return
					}
				}
				for range n % 32 { // a moment sooner or later
					done.Load()
				}
				wakes = x.bring(n * lineBytes)
				done.Store(n)
			}
		}()
		until := time.Now().Add(3 * time.Second) // on a machine that is busy
		for n := uint64(1); n <= rounds && time.Now().Before(until); n++ {
			begun.Store(n)
			ready := x.wait(n * lineBytes)
			for done.Load() < n {
				runtime.Gosched()
			}
			if !ready && !wakes && !race.Enabled {
				t.Fatalf("%s: nobody notices wait %d", what, n)
			}
			a.Waited()
		}
		over.Store(true)
		x.wait((rounds + 1) * lineBytes)
		a.Waited()
		if x.bring((rounds + 1) * lineBytes) {
			t.Errorf("%s: who does not wait is woken", what)
		}
	}
}
