package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pair are the terms of two of a run.
func pair() (here, there *Terms) {
	here = &Terms{Run: "a run", Identity: "a program", Token: []byte("secret"), World: 3, Called: "rank"}
	other := *here
	other.Self = 1
	return here, &other
}

// challenged dials who meets a, and reads its challenge.
func challenged(t *testing.T, terms *Terms) (*Channel, step, chan error) {
	t.Helper()
	a, b := net.Pipe()
	met := make(chan error, 1)
	go func() {
		g, err := terms.meet(a)
		if err == nil {
			err = g.Welcome()
		} else if g != nil {
			g.Refuse(err)
		}
		a.Close()
		met <- err
	}()
	ch := &Channel{Conn: b}
	var s step
	if err := ch.Receive(maxHello, Patience, &s); err != nil {
		t.Fatal(err)
	}
	return ch, s, met
}

// A proof is good for one challenge, one hello and one role, and only once.
func TestProofsAreForOneThing(t *testing.T) {
	here, there := pair()
	h := there.Hello(0)
	changed := h
	changed.Group = 7
	overheard := func() step { // a handshake that went well
		ch, first, met := challenged(t, here)
		s := step{Kind: stepHello, Hello: &h, Nonce: nonce(), MAC: there.prove("dials", first.Nonce, &h)}
		if err := ch.Send(s, Patience); err != nil {
			t.Fatal(err)
		}
		var answer step
		if err := ch.Receive(maxHello, Patience, &answer); err != nil || answer.Kind != stepWelcome || <-met != nil {
			t.Fatalf("%+v, %v", answer, err)
		}
		return s
	}()
	for name, make := range map[string]func(own []byte) step{
		"of a handshake that was overheard": func([]byte) step { return overheard },
		"of another challenge":              func([]byte) step { x := overheard; x.MAC = there.prove("dials", x.Nonce, &h); return x },
		"of another hello":                  func(own []byte) step { return step{Hello: &changed, MAC: there.prove("dials", own, &h)} },
		"of the other role":                 func(own []byte) step { return step{Hello: &h, MAC: there.prove("accepts", own, &h)} },
		"of no role":                        func(own []byte) step { return step{Hello: &h, MAC: there.prove("", own, &h)} },
		"cut":                               func(own []byte) step { return step{Hello: &h, MAC: there.prove("dials", own, &h)[:31]} },
		"none":                              func([]byte) step { return step{Hello: &h} },
	} {
		ch, first, met := challenged(t, here)
		s := make(first.Nonce)
		s.Kind, s.Nonce = stepHello, nonce()
		var answer step
		if err := errors.Join(ch.Send(s, Patience), ch.Receive(maxHello, Patience, &answer)); err != nil || answer.Kind != stepRefused || answer.Text != ErrToken.Error() {
			t.Errorf("a proof %s: %+v, %v", name, answer, err)
		}
		if err := <-met; err == nil {
			t.Errorf("a proof %s is taken", name)
		}
	}
}

// Who dials is not told by its own words, sent back, that the other side knows the token:
// a stranger that is dialed twice could have the one connection prove it for the other.
func TestDialerIsNotReflected(t *testing.T) {
	_, there := pair()
	h := there.Hello(0)
	first, second := make(chan error, 1), make(chan error, 1)
	dialed := func(challenge []byte, out chan error) (*Channel, step) {
		a, b := net.Pipe()
		go func() {
			_, err := there.Greet(context.Background(), b, h)
			out <- err
			b.Close()
		}()
		ch := &Channel{Conn: a}
		var said step
		if err := errors.Join(ch.Send(step{Kind: stepChallenge, Nonce: challenge}, Patience), ch.Receive(maxHello, Patience, &said)); err != nil {
			t.Fatal(err)
		}
		return ch, said
	}
	one, asks := dialed(nonce(), first)
	_, proves := dialed(asks.Nonce, second) // what the first wants proven
	if err := one.Send(step{Kind: stepWelcome, MAC: proves.MAC}, Patience); err != nil {
		t.Fatal(err)
	}
	if refused := (*Refusal)(nil); !errors.As(<-first, &refused) {
		t.Error("a stranger is believed that said what it had heard")
	}
	for _, mac := range [][]byte{nil, {}, asks.MAC} {
		ch, _ := dialed(nonce(), second)
		if err := ch.Send(step{Kind: stepWelcome, MAC: mac}, Patience); err != nil {
			t.Fatal(err)
		}
		if err := <-second; err == nil {
			t.Errorf("a welcome with proof %x is believed", mac)
		}
	}
}

// Who is refused is told why, and then nothing is kept of it.
func TestRefusedIsClosed(t *testing.T) {
	a, b := net.Pipe()
	go (&Guest{Channel: &Channel{Conn: a}}).Refuse(errors.New("no"))
	var answer step
	if err := (&Channel{Conn: b}).Receive(maxHello, Patience, &answer); err != nil || answer.Kind != stepRefused || answer.Text != "no" {
		t.Errorf("%+v, %v", answer, err)
	}
	_ = b.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := b.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("then %v", err)
	}
}

// No challenge is made twice, by neither side.
func TestChallengesAreNew(t *testing.T) {
	here, there := pair()
	seen := map[string]bool{}
	for range 50 {
		a, b := net.Pipe()
		done := make(chan struct{})
		go func() {
			_, _ = here.meet(a) // how it ends is not in question here
			close(done)
		}()
		var own step
		_ = (&Channel{Conn: b}).Receive(maxHello, Patience, &own)
		b.Close()
		<-done
		a, b = net.Pipe()
		go func() { _, _ = there.Greet(context.Background(), b, there.Hello(0)) }() // as above
		ch := &Channel{Conn: a}
		var theirs step
		if err := errors.Join(ch.Send(step{Kind: stepChallenge, Nonce: nonce()}, Patience), ch.Receive(maxHello, Patience, &theirs)); err != nil {
			t.Fatal(err)
		}
		a.Close()
		for _, n := range [][]byte{own.Nonce, theirs.Nonce} {
			if len(n) != nonceBytes || seen[string(n)] {
				t.Fatalf("challenge %x", n)
			}
			seen[string(n)] = true
		}
	}
}

// A stranger gets a handshake's time, whether it says nothing or a little now and then.
func TestStrangersTimeIsLimited(t *testing.T) {
	here, _ := pair()
	hello := said(t, step{Kind: stepHello, Hello: &Hello{}})
	for _, every := range []time.Duration{0, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			a, b := net.Pipe()
			var other sync.WaitGroup
			other.Go(func() { _, _ = io.Copy(io.Discard, b) }) // until it is closed
			other.Go(func() {
				for i := 0; every > 0 && i < len(hello); i++ {
					time.Sleep(every)
					if _, err := b.Write(hello[i : i+1]); err != nil {
						return
					}
				}
			})
			begun := time.Now()
			_, err := here.meet(a)
			if took := time.Since(begun); !errors.Is(err, os.ErrDeadlineExceeded) || took != Patience {
				t.Errorf("a byte every %v: %v after %v", every, err, took)
			}
			a.Close()
			b.Close()
			other.Wait()
		})
		synctest.Test(t, func(t *testing.T) { // who does not read what it is told
			a, b := net.Pipe()
			begun := time.Now()
			_, err := here.meet(a)
			if took := time.Since(begun); err == nil || took != Patience {
				t.Errorf("%v after %v", err, took)
			}
			a.Close()
			b.Close()
		})
	}
}

// A length is believed only when it is one that a hello may have.
func TestLengthIsCheckedFirst(t *testing.T) {
	here, there := pair()
	for _, n := range []uint32{maxHello + 1, 1 << 28, 1<<32 - 1} {
		b := append(binary.LittleEndian.AppendUint32(nil, n), make([]byte, 2*maxHello)...)
		for name, meet := range map[string]func(net.Conn) error{
			"acceptor": func(c net.Conn) error { _, err := here.meet(c); return err },
			"dialer":   func(c net.Conn) error { _, err := there.Greet(context.Background(), c, there.Hello(0)); return err },
		} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			left := &scripted{said: bytes.NewReader(b)}
			err := meet(left)
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; err == nil || took > 1<<20 || left.said.Len() != 2*maxHello {
				t.Errorf("%s, a length of %d: %v, %d bytes of memory, %d are left to read", name, n, err, took, left.said.Len())
			}
		}
	}
}

// served serves terms at a port of this host until the end of the test; it says who was
// taken and who was not.
func served(t *testing.T, terms *Terms) (at string, taken chan *Guest, refused chan Refused) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	taken, refused = make(chan *Guest, 1), make(chan Refused, 1<<12)
	over := make(chan struct{})
	go func() {
		terms.Serve(ln, func(g *Guest) { _ = g.Welcome(); taken <- g }, func(r Refused) { refused <- r }) // who dials sees whether it is
		close(over)
	}()
	t.Cleanup(func() {
		ln.Close()
		<-over
	})
	return ln.Addr().String(), taken, refused
}

// from dials from an address of this host.
func from(t *testing.T, own, at string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(own)}}
	c, err := d.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// There is room for so many strangers and no more: the oldest of the address that has
// most of them goes, and nobody else; and who belongs to the run comes in.
func TestRoomForStrangers(t *testing.T) {
	here, there := pair()
	at, taken, refused := served(t, here)
	const crowd = "127.0.0.1"
	own := "127.0.0.2"
	if runtime.GOOS != "linux" { // others have one loopback address
		own = crowd
	}
	slow := from(t, own, at) // is there first
	time.Sleep(50 * time.Millisecond)
	var all []net.Conn
	for range maxStrangers + 20 {
		all = append(all, from(t, crowd, at))
	}
	first := 21 // in the place of slow too
	if own == crowd {
		first = 20
	}
	for range first {
		<-refused
	}
	ended := func(c net.Conn) bool {
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		_, err := io.Copy(io.Discard, c)
		return !errors.Is(err, os.ErrDeadlineExceeded)
	}
	for i, c := range all {
		if i%16 > 0 && i > 40 {
			continue // each of them takes a while
		}
		if gone := ended(c); gone != (i < first) {
			t.Errorf("stranger %d of %d: gone %v", i, len(all), gone)
		}
	}
	if own != crowd {
		if ch, err := there.Greet(context.Background(), slow, there.Hello(0)); err != nil {
			t.Errorf("who was first and is elsewhere: %v", err)
		} else {
			<-taken
			ch.Conn.Close()
		}
	}
	ch, err := there.Greet(context.Background(), from(t, crowd, at), there.Hello(0))
	if err != nil {
		t.Fatal(err)
	}
	<-taken
	ch.Conn.Close()
}

// Strangers leave nothing behind: no goroutine, no connection, and the room that they had.
func TestStrangersLeaveNothing(t *testing.T) {
	here, there := pair()
	at, taken, refused := served(t, here)
	h := there.Hello(0)
	other := *there
	other.Token = []byte("another")
	kinds := []func(net.Conn) error{
		func(net.Conn) error { return nil },
		func(c net.Conn) error { _, err := c.Write([]byte{0xff, 0xff, 0xff, 0xff}); return err },
		func(c net.Conn) error { _, err := io.WriteString(c, "GET / HTTP/1.1\r\n\r\n"); return err },
		func(c net.Conn) error {
			_, err := other.Greet(context.Background(), c, h)
			return errors.Join(err, errors.New(""))
		},
	}
	slow := from(t, "127.0.0.1", at) // is there before them, and after
	time.Sleep(50 * time.Millisecond)
	before := runtime.NumGoroutine()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 64 {
				c, err := net.Dial("tcp", at)
				if err != nil {
					t.Error(err)
					return
				}
				_ = kinds[(i+n)%len(kinds)](c) // it is to fail
				c.Close()
			}
		})
	}
	all.Wait()
	for range 8 * 64 {
		select {
		case r := <-refused:
			if r.Ours || r.Err == nil {
				t.Errorf("%+v", r)
			}
		case g := <-taken:
			t.Fatalf("one of them was taken: %+v", g.Hello)
		case <-time.After(20 * time.Second):
			t.Fatal("not all of them are refused")
		}
	}
	defer func() {
		if _, err := there.Greet(context.Background(), slow, h); err != nil {
			t.Errorf("who was there before: %v", err)
		}
	}()
	for begun := time.Now(); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Since(begun) > 5*time.Second {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}

// Who dials waits no longer than its context lets it, whoever it has reached.
func TestGreetsWithinContext(t *testing.T) {
	_, there := pair()
	why := errors.New("told to end")
	for _, c := range []struct {
		name string
		end  func() (context.Context, context.CancelFunc)
		want string
	}{
		{"deadline", func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.Background(), 2*time.Second)
		}, "handshake: context deadline exceeded: it says nothing, and may want TLS"},
		{"cause", func() (context.Context, context.CancelFunc) {
			ctx, stop := context.WithCancelCause(context.Background())
			time.AfterFunc(2*time.Second, func() { stop(why) })
			return ctx, func() { stop(nil) }
		}, "handshake: told to end"},
	} {
		synctest.Test(t, func(t *testing.T) {
			a, b := net.Pipe()
			ctx, stop := c.end()
			defer stop()
			begun := time.Now()
			ch, err := there.Greet(ctx, a, there.Hello(0))
			if took := time.Since(begun); ch != nil || err == nil || err.Error() != c.want || took != 2*time.Second {
				t.Errorf("%s: %v after %v, want %q after 2 s", c.name, err, took, c.want)
			}
			a.Close()
			b.Close()
		})
	}
}

// Whatever both must agree on, and do not, is said with both values.
func TestAccepts(t *testing.T) {
	here, there := pair()
	own, other := endian(), "big"
	if own == other {
		other = "little"
	}
	for want, change := range map[string]func(*Hello){
		"run is another there and a run here":                           func(h *Hello) { h.Run = "another" },
		"program and configuration is another there and a program here": func(h *Hello) { h.Identity = "another" },
		fmt.Sprintf("byte order is %s there and %s here", other, own):   func(h *Hello) { h.Endian = other },
		"byte order is  there and " + own + " here":                     func(h *Hello) { h.Endian = "" },
		"number of ranks is 4 there and 3 here":                         func(h *Hello) { h.World = 4 },
		"rank dialed is 2 there and 0 here":                             func(h *Hello) { h.To = 2 },
		"rank 3 in a world of 3":                                        func(h *Hello) { h.From = 3 },
		"rank -1 in a world of 3":                                       func(h *Hello) { h.From = -1 },
	} {
		h := there.Hello(0)
		change(&h)
		if err := here.accepts(&h); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if h := there.Hello(0); here.accepts(&h) != nil {
		t.Errorf("%v of one that fits", here.accepts(&h))
	}
}
