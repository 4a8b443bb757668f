//go:build mpi

package mpi

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/comm/engine"
	"github.com/lockstep-ml/lockstep/core/comm/tcp"
)

// sockets are both sides of a connection.
func sockets(t *testing.T) (a, b net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if a, err = net.Dial("tcp", ln.Addr().String()); err == nil {
		b, err = ln.Accept()
	}
	if err != nil {
		t.Fatal(err)
	}
	return a, b
}

// pair is both sides of a link, through the last process of MPI's world.
func pair(t *testing.T) (a, b *link) {
	t.Helper()
	near, far := sockets(t)
	mirror := -1
	if here.size > 1 {
		mirror = here.size - 1
	}
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	var all [2]engine.Link
	errs := make(chan error, 2)
	for i, conn := range []net.Conn{near, far} {
		go func() {
			var err error
			all[i], err = here.connect(ctx, conn, mirror)
			errs <- err
		}()
	}
	if err := errors.Join(<-errs, <-errs); err != nil {
		t.Fatal(err)
	}
	return all[0].(*link), all[1].(*link)
}

// frame is a header and a payload.
type frame struct{ header, payload []byte }

func random(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return b
}

// lengths of payloads: none, one, what fits into a message with a header and what does
// not, more than may be under way.
func lengths() []int {
	const header = 48
	return []int{0, 1, slotBytes - header - 1, slotBytes - header, slotBytes - header + 1, slotBytes, slots * slotBytes, (slots+1)*slotBytes + 7, 0, 3}
}

// write writes a frame.
func (l *link) write(f frame) error {
	for done, begun := 0, time.Now(); done < len(f.header)+len(f.payload); {
		n, err := l.Write(f.header, f.payload, done)
		if err != nil {
			return err
		}
		if done += n; n == 0 {
			runtime.Gosched()
		}
		if time.Since(begun) > 20*time.Second {
			return errors.New("is not written")
		}
	}
	return nil
}

// readTo reads into a frame of known lengths; the header alone at first, as where that
// says how long the payload is.
func (l *link) readTo(f frame) error {
	for _, x := range []frame{{f.header, nil}, f} {
		done := len(f.header)
		if x.payload == nil {
			done = 0
		}
		for begun := time.Now(); done < len(x.header)+len(x.payload); {
			n, err := l.Read(x.header, x.payload, done)
			if err != nil {
				return err
			}
			if done += n; n == 0 {
				l.Wait(true, false)
				l.Waited()
				runtime.Gosched()
			}
			if time.Since(begun) > 20*time.Second {
				return errors.New("is not read")
			}
		}
	}
	return nil
}

// What one side writes the other reads, both ways at once, whatever the lengths; after
// the end of a side all that it wrote is read, and then its end.
func TestLinkCarriesBytes(t *testing.T) {
	a, b := pair(t)
	var frames []frame
	for _, n := range lengths() {
		frames = append(frames, frame{random(48), random(n)})
	}
	errs := make(chan error, 4)
	for _, way := range [][2]*link{{a, b}, {b, a}} {
		go func() {
			var err error
			for _, f := range frames {
				err = errors.Join(err, way[0].write(f))
			}
			errs <- err
		}()
		go func() {
			for i, f := range frames {
				got := frame{make([]byte, len(f.header)), make([]byte, len(f.payload))}
				if err := way[1].readTo(got); err != nil {
					errs <- err
					return
				}
				if !bytes.Equal(got.header, f.header) || !bytes.Equal(got.payload, f.payload) {
					t.Errorf("frame %d of %d bytes is another one", i, len(f.payload))
				}
			}
			errs <- nil
		}()
	}
	for range 4 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	last := frame{random(48), random(2*slotBytes + 1)}
	if err := a.write(last); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	for begun := time.Now(); !b.left && time.Since(begun) < 10*time.Second; time.Sleep(time.Millisecond) {
		b.Waited()
	}
	got := frame{make([]byte, 48), make([]byte, len(last.payload))}
	if err := b.readTo(got); err != nil || !bytes.Equal(got.payload, last.payload) {
		t.Errorf("what was written last: %v", err)
	}
	var err error
	for begun := time.Now(); err == nil && time.Since(begun) < 10*time.Second; {
		_, err = b.Read(make([]byte, 48), nil, 0)
	}
	if !errors.Is(err, io.EOF) {
		t.Errorf("behind all that was written: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	here.mu.Lock()
	defer here.mu.Unlock()
	if len(here.taken) > 0 {
		t.Errorf("tags %v are taken", here.taken)
	}
}

// A side that has closed the link is gone once its last message has come, and one that
// says nothing at its end is at once; what it says besides is corrupt.
func TestEnd(t *testing.T) {
	for _, x := range []struct {
		says string
		last bool // the last message is sent
		want error
	}{
		{farewell, false, nil},
		{farewell, true, io.EOF},
		{"", false, io.EOF},
		{"x", false, io.EOF},
		{"..", false, errAny},
	} {
		a, b := pair(t)
		if _, err := a.bell.Write(nil, []byte(x.says), 0); err != nil {
			t.Fatal(err)
		}
		if x.last {
			if err := a.out.ring[0].send(0, a.to); err != nil {
				t.Fatal(err)
			}
		} else if _, err := b.Read(make([]byte, 48), nil, 0); err != nil {
			t.Errorf("before the end: %v", err)
		}
		a.bell.Close()
		for begun := time.Now(); !b.left && b.gone == nil && time.Since(begun) < 10*time.Second; time.Sleep(time.Millisecond) {
			b.Waited()
		}
		var n int
		var err error
		for begun := time.Now(); err == nil && time.Since(begun) < 50*time.Millisecond; {
			n, err = b.Read(make([]byte, 48), nil, 0)
		}
		if n != 0 || x.want != errAny && err != x.want || x.want == errAny && (err == nil || errors.Is(err, io.EOF)) {
			t.Errorf("said %q, the last message %v: %d, %v, want %v", x.says, x.last, n, err, x.want)
		}
		err = nil
		payload, done := make([]byte, 8*slots*slotBytes), 0 // more than MPI takes of what nobody reads
		for begun := time.Now(); err == nil && time.Since(begun) < time.Second; done += n {
			n, err = b.Write(make([]byte, 48), payload, done)
		}
		if err == nil {
			t.Errorf("said %q: %d bytes are written to one that is gone", x.says, done)
		}
		b.Close()
		a.retire()
	}
}

// What has come of a side that ended without a word is still read.
func TestReadAfterACrash(t *testing.T) {
	a, b := pair(t)
	want := frame{random(48), random(1000)}
	if err := a.write(want); err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond) // for it to come, also where that is by way of a mirror
	a.bell.Close()
	for begun := time.Now(); b.gone == nil && time.Since(begun) < 10*time.Second; time.Sleep(time.Millisecond) {
		b.Waited()
	}
	got := frame{make([]byte, 48), make([]byte, 1000)}
	if err := b.readTo(got); err != nil || !bytes.Equal(got.payload, want.payload) {
		t.Errorf("what has come: %v", err)
	}
	if _, err := b.Read(make([]byte, 48), nil, 0); !errors.Is(err, io.EOF) {
		t.Errorf("behind it: %v", err)
	}
	b.Close()
	a.retire()
}

// errAny is any error but the end.
var errAny = errors.New("any")

// Slots of links that both sides have closed are freed.
func TestClosedLinksLeaveNothing(t *testing.T) {
	here.mu.Lock()
	before := len(here.retired) // of tests in which one side did not
	here.mu.Unlock()
	for range 3 {
		a, b := pair(t)
		a.Close()
		b.Close()
	}
	left := -1
	for begun := time.Now(); (left < 0 || left > before) && time.Since(begun) < 10*time.Second; time.Sleep(pace) {
		here.mu.Lock()
		left = len(here.retired)
		here.mu.Unlock()
	}
	if left > before {
		t.Errorf("%d slots are left, %d before", left, before)
	}
}

// What is not an address is refused with the rule.
func TestStrangeAddress(t *testing.T) {
	for _, b := range []string{"\xff\x00\x00\x00\x01\x00\x00\x00", "\x00\x00\x00\x00\x00\x00\x00\x00", "\x00\x00\x00\x00\xff\xff\xff\xff"} {
		near, far := sockets(t)
		if _, err := far.Write([]byte(b)); err != nil {
			t.Fatal(err)
		}
		if _, err := here.connect(t.Context(), near, -1); err == nil || !strings.Contains(err.Error(), "must lie below") {
			t.Errorf("%q: %v", b, err)
		}
		near.Close()
		far.Close()
	}
}

// Tags go round, without those that are taken.
func TestTags(t *testing.T) {
	p := &Process{tags: 3, taken: map[int]bool{}}
	for _, want := range []int{1, 2, 3} {
		if tag, err := p.tagged(); tag != want || err != nil {
			t.Errorf("%d, %v, want %d", tag, err, want)
		}
	}
	if tag, err := p.tagged(); err == nil {
		t.Errorf("a fourth of three: %d", tag)
	}
	p.retire(2, nil)
	if tag, err := p.tagged(); tag != 2 || err != nil {
		t.Errorf("%d, %v, want the one that is free", tag, err)
	}
}

// A level below MPI_THREAD_MULTIPLE is refused by its name.
func TestThreads(t *testing.T) {
	for level, name := range []string{"MPI_THREAD_SINGLE", "MPI_THREAD_FUNNELED", "MPI_THREAD_SERIALIZED"} {
		if err := threads(level); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("level %d: %v", level, err)
		}
	}
	if err := threads(3); err != nil {
		t.Error(err)
	}
}

// A nil pointer is still a panic that Go recovers, whatever MPI has done to signals.
func TestSignalsAreGo(t *testing.T) {
	defer func() {
		if p := recover(); p == nil {
			t.Error("no panic")
		}
	}()
	var l *link
	l.out.put++
}

// A rank whose peer says nothing fails when its deadline is over.
func TestSilentPeer(t *testing.T) {
	const deadline = 300 * time.Millisecond
	ends, err := engine.Local(t.Context(), 2, host, comm.Options{Deadline: deadline}, func() (engine.Way, error) {
		w, err := tcp.Listen("127.0.0.1:0")
		return here.Way(w), err
	})
	if err != nil {
		t.Fatal(err)
	}
	var errs [2]error
	done := make(chan int, 2)
	for i, e := range ends { // so that there is a link
		go func() { errs[i] = e.Barrier(t.Context()); done <- i }()
	}
	<-done
	<-done
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	err = ends[0].Barrier(t.Context())
	if took := time.Since(begun); !errors.Is(err, comm.ErrDeadline) || took < deadline || took > 10*deadline {
		t.Errorf("after %v: %v", took, err)
	}
	for _, e := range ends {
		e.Close()
	}
}
