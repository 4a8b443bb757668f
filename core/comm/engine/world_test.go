//go:build unix

package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/comm/commtest"
	"github.com/lockstep-ml/lockstep/core/comm/internal/protocol"
	"github.com/lockstep-ml/lockstep/core/comm/wire"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
)

// free is a port of the loopback interface that nobody listens on.
func free(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// config is that of a rank of a small world.
func config(rank, size int, at string) Config {
	return Config{Rank: rank, Size: size, Coordinator: at, Run: "a run", Identity: "a program", Rendezvous: 3 * time.Second,
		Options: comm.Options{Deadline: 5 * time.Second}}
}

// sockets is a way over TCP.
func sockets(addr string) (Way, error) {
	ln, err := net.Listen("tcp", addr)
	return Way{Name: "sockets", Listener: ln,
		Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		},
		Link: func(_ context.Context, conn net.Conn, _ bool) (Link, error) { return Socket(conn, nil) }}, err
}

// joined lets all ranks of a world join, each with its configuration, over sockets.
func joined(configs []Config) ([]comm.Communicator, []error) {
	ends, errs := make([]comm.Communicator, len(configs)), make([]error, len(configs))
	var wg sync.WaitGroup
	for i, c := range configs {
		at := "127.0.0.1:0"
		if c.Rank == 0 {
			at = c.Coordinator
		}
		w, err := sockets(at)
		if err != nil {
			errs[i] = err
			continue
		}
		c.Ways = []Way{w}
		wg.Go(func() { ends[i], errs[i] = Join(context.Background(), c, commtest.Memory{}) })
	}
	wg.Wait()
	return ends, errs
}

// A rank of another run, program, size, or with another token is refused, with both
// values where they are no secret; the error names the rule.
func TestStrangersAreRefused(t *testing.T) {
	for _, x := range []struct {
		name   string
		change func(*Config)
		says   []string
	}{
		{"run", func(c *Config) { c.Run = "another" }, []string{"another", "a run"}},
		{"program", func(c *Config) { c.Identity = "another" }, []string{"another", "a program"}},
		{"size", func(c *Config) { c.Size = 3 }, []string{"number of ranks", "3", "2"}},
		{"token", func(c *Config) { c.Token = []byte("wrong") }, []string{"token"}},
		{"no token", func(c *Config) { c.Token = nil }, []string{"token"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			at := free(t)
			all := []Config{config(0, 2, at), config(1, 2, at)}
			for i := range all {
				all[i].Rendezvous = 500 * time.Millisecond
				all[i].Token = []byte("secret")
			}
			x.change(&all[1])
			_, errs := joined(all)
			if errs[1] == nil {
				t.Fatal("the stranger has joined")
			}
			for _, part := range x.says {
				if !strings.Contains(errs[1].Error(), part) {
					t.Errorf("error %q does not say %q", errs[1], part)
				}
			}
			if strings.Contains(errs[1].Error(), "secret") {
				t.Errorf("error %q tells the token", errs[1])
			}
			if errs[0] == nil || !strings.Contains(errs[0].Error(), "rank 1 did not") {
				t.Errorf("rank 0 does not name the absent rank: %v", errs[0])
			}
		})
	}
}

// Two processes that both say that they are rank 1: the second is refused.
func TestRankTwice(t *testing.T) {
	at := free(t)
	ends, errs := joined([]Config{config(0, 2, at), config(1, 2, at), config(1, 2, at)})
	if errs[0] != nil {
		t.Fatal(errs[0])
	}
	failed := errors.Join(errs[1], errs[2])
	if failed == nil || (errs[1] != nil) == (errs[2] != nil) || !strings.Contains(failed.Error(), "rank 1 has come already") {
		t.Errorf("errors %v, %v", errs[1], errs[2])
	}
	for _, e := range ends {
		if e != nil {
			e.Close()
		}
	}
}

// Connections that say nothing, garbage, endless notes or false hellos change nothing
// for the run.
func TestGarbageIsNothing(t *testing.T) {
	at := free(t)
	before := runtime.NumGoroutine()
	ends, errs := joined([]Config{config(0, 2, at), config(1, 2, at)})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	targets := []string{ends[0].(*end).n.cfg.Addr(), ends[1].(*end).n.cfg.Addr()}
	var wg sync.WaitGroup
	wg.Go(func() {
		huge := binary.LittleEndian.AppendUint32(nil, 1<<31)
		for i := range 400 {
			conn, err := net.Dial("tcp", targets[i%2])
			if err != nil {
				t.Error(err)
				return
			}
			switch i % 5 {
			case 0:
				io.WriteString(conn, "GET / HTTP/1.1\r\n\r\n")
			case 1:
				conn.Write(huge)
			case 2:
				conn.Write(append(binary.LittleEndian.AppendUint32(nil, 2), "{}"...))
			case 3:
				conn.Write(append(binary.LittleEndian.AppendUint32(nil, 9), `{"rank":1`...))
			}
			conn.Close()
		}
	})
	work := func(c comm.Communicator) error {
		be := commtest.Memory{}
		buf, err := be.Alloc(1000)
		for i := 0; err == nil && i < 200; i++ {
			be.Write(kernels.Flat(buf), bytes1(1000, float32(c.Rank()+1)))
			if err = c.AllReduce(context.Background(), kernels.Flat(buf), kernels.Sum); err == nil {
				x := make([]float32, 1000)
				err = be.Read(x, kernels.Flat(buf))
				if x[0] != 3 || x[999] != 3 {
					err = fmt.Errorf("sum %v", x[0])
				}
			}
		}
		return err
	}
	for _, c := range ends {
		wg.Go(func() {
			if err := work(c); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, c := range ends {
		c.Close()
	}
	level(t, before)
}

func bytes1(n int, v float32) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = v
	}
	return x
}

// A rank that ends without a word, in the middle of operations: all others fail soon
// and name it.
func TestLostRankIsNamed(t *testing.T) {
	at := free(t)
	ends, errs := joined([]Config{config(0, 3, at), config(1, 3, at), config(2, 3, at)})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	var wg sync.WaitGroup
	got := make([]error, 3)
	for i, c := range ends {
		wg.Go(func() {
			for n := 0; got[i] == nil; n++ {
				if i == 2 && n == 20 {
					dead := c.(*end)
					dead.n.ctl.Conn.Close() // as the kernel does for a killed process
					for _, l := range dead.links {
						if l != nil {
							l.close()
						}
					}
					return
				}
				got[i] = c.Barrier(context.Background())
			}
		})
	}
	wg.Wait()
	if took := time.Since(begun); took > 4*time.Second {
		t.Errorf("it took %v", took)
	}
	for i, err := range got[:2] {
		var e *comm.Error
		if !errors.As(err, &e) || e.Peer != 2 || !errors.Is(err, comm.ErrLost) {
			t.Errorf("rank %d: %v", i, err)
		}
	}
}

// A rank whose process is stopped says nothing: after the silence that is allowed all
// others fail and name it.
func TestSilentRankIsNamed(t *testing.T) {
	at := free(t)
	all := []Config{config(0, 2, at), config(1, 2, at)}
	for i := range all {
		all[i].Silence, all[i].Deadline = 600*time.Millisecond, time.Minute
	}
	ends, errs := joined(all)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	n := ends[1].(*end).n
	n.ctl.Sending.Lock() // its beats do not leave any more
	err := ends[0].Barrier(context.Background())
	n.ctl.Sending.Unlock()
	if !errors.Is(err, comm.ErrLost) || !strings.Contains(fmt.Sprint(err), "rank 1 has said nothing for 600ms") {
		t.Errorf("%v", err)
	}
}

// A rank that says what cannot be is to blame, and does not take rank 0 down.
func TestStandThatCannotBe(t *testing.T) {
	at := free(t)
	ends, errs := joined([]Config{config(0, 2, at), config(1, 2, at)})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for _, peer := range []int{-1, 2, 1 << 40} {
		call := &protocol.Said{Op: names.OpSend, Peer: peer}
		s := &stand{Groups: []standInGroup{{Ranks: []int{0, 1}, Call: call}}}
		if err := ends[1].(*end).n.ctl.send(note{Kind: noteStand, Rank: 1, Stand: s}, time.Second); err != nil {
			t.Fatal(err)
		}
	}
	err := ends[0].Barrier(context.Background())
	var e *comm.Error
	if !errors.As(err, &e) || e.Peer != 1 || !errors.Is(err, comm.ErrCorrupt) {
		t.Errorf("%v", err)
	}
}

// With sums on, a bit that changes on the way is found, and the link is named.
func TestCorruptLinkIsNamed(t *testing.T) {
	f := frame{kind: piece, phase: 3, index: 7, seq: 1 << 40, call: 5, length: 4}
	payload := []byte{1, 2, 3, 4}
	f.sum(payload)
	var b [headerBytes]byte
	f.put(&b)
	var g frame
	if err := g.get(&b); err != nil || g != f {
		t.Fatalf("%+v, %v, want %+v", g, err, f)
	}
	if err := g.check(payload); err != nil {
		t.Error(err)
	}
	for bit := range 8 * len(payload) {
		changed := bytes.Clone(payload)
		changed[bit/8] ^= 1 << (bit % 8)
		if g.check(changed) == nil {
			t.Errorf("bit %d of the payload changed, and nobody noticed", bit)
		}
	}
	for bit := range 8 * headerBytes {
		changed := b
		changed[bit/8] ^= 1 << (bit % 8)
		if new(frame).get(&changed) == nil {
			t.Errorf("bit %d of the header changed, and nobody noticed", bit)
		}
	}
}

// Where one rank does not join, nothing is left of those that did.
func TestJoinsAllOrNone(t *testing.T) {
	before := runtime.NumGoroutine()
	configs, err := Listen(3, func() ([]Way, error) {
		w, err := sockets("127.0.0.1:0")
		return []Way{w}, err
	})
	if err != nil {
		t.Fatal(err)
	}
	for r := range configs {
		ways := configs[r].Ways
		configs[r] = config(r, 3, configs[0].Addr())
		configs[r].Ways, configs[r].Rendezvous = ways, 500*time.Millisecond
	}
	configs[2].Run = "another"
	ends, err := JoinAll(context.Background(), configs, func(int) kernels.Backend { return commtest.Memory{} })
	if err == nil || ends != nil {
		t.Fatalf("%v, %v", ends, err)
	}
	for _, c := range configs {
		if conn, err := net.Dial("tcp", c.Addr()); err == nil {
			conn.Close()
			t.Errorf("rank %d listens on", c.Rank)
		}
	}
	level(t, before)
}

// A rank that leaves as soon as it is told where all listen is heard of by one that is told
// later: that does not wait for it until its deadline.
func TestLeavesAtOnce(t *testing.T) {
	w, err := sockets("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Listener.Close()
	at := w.Listener.Addr().String()
	zero := config(0, 2, at)
	go zero.terms(&w).Serve(w.Listener, func(g *wire.Guest) {
		if g.Hello.Group != worldID || g.Welcome() != nil {
			return
		}
		to := &channel{g.Channel}
		for _, n := range []note{
			{Kind: noteLeft, Rank: 0, Group: worldID, Ranks: []int{0, 1}, Left: &departure{}},
			{Kind: noteTable, Addrs: []map[string]string{{"sockets": at}, {}}},
		} {
			if err := to.send(n, time.Second); err != nil {
				t.Error(err)
			}
		}
	}, nil)
	one := config(1, 2, at)
	own, err := sockets("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	one.Ways = []Way{own}
	c, err := Join(t.Context(), one, commtest.Memory{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Barrier(t.Context()); err == nil || !strings.Contains(err.Error(), "rank 0 closed the group") {
		t.Errorf("%v, want that rank 0 closed the group", err)
	}
}

// level waits until there are no more goroutines than before.
func level(t *testing.T, before int) {
	t.Helper()
	for until := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before+2; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			b := make([]byte, 1<<16)
			t.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, b[:runtime.Stack(b, true)])
		}
	}
}
