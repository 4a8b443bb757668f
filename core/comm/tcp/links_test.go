//go:build unix

package tcp_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/comm/commtest"
	"github.com/lockstep-ml/lockstep/core/comm/engine"
	"github.com/lockstep-ml/lockstep/core/comm/tcp"
	"github.com/lockstep-ml/lockstep/kernels"
)

// wires carry the connections that one rank dials: the first is to rank 0, all later
// ones are data links. From the moment that a fault begins it is in all of its kind.
type wires struct {
	fault string
	data  bool // only data links have it
	begun atomic.Bool
	dials atomic.Int32
	bent  atomic.Bool // a bit was

	mu  sync.Mutex
	all []net.Conn // that the fault is in
}

const (
	late    = "late"    // bytes take 3 ms
	crumbs  = "crumbs"  // bytes come a few at a time
	severed = "severed" // connections end
	silent  = "silent"  // bytes are lost
	bent    = "bent"    // one bit of a payload is another
)

// dial connects through a wire.
func (w *wires) dial(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	far, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer ln.Close()
	near, err := d.DialContext(ctx, "tcp", ln.Addr().String())
	if err != nil {
		return nil, err
	}
	mid, err := ln.Accept()
	if err != nil {
		return nil, err
	}
	faulty := w.dials.Add(1) > 1 || !w.data
	if faulty {
		w.mu.Lock()
		w.all = append(w.all, mid, far)
		w.mu.Unlock()
	}
	go w.carry(mid, far, faulty)
	go w.carry(far, mid, faulty)
	return near, nil
}

// begin lets the fault begin.
func (w *wires) begin() {
	if w.begun.Swap(true) || w.fault != severed {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.all {
		c.Close()
	}
}

// carry copies in one direction.
func (w *wires) carry(from, to net.Conn, faulty bool) {
	defer to.Close()
	b := make([]byte, 1<<16)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		step := n
		if faulty && w.begun.Load() {
			switch w.fault {
			case late:
				time.Sleep(3 * time.Millisecond)
			case crumbs:
				step = 7
			case silent:
				continue
			case bent: // what is longer than a header ends with a payload
				if n > 1000 && !w.bent.Swap(true) {
					b[n-1] ^= 1 << 6
				}
			}
		}
		for x := b[:n]; len(x) > 0; x = x[min(step, len(x)):] {
			if _, err := to.Write(x[:min(step, len(x))]); err != nil {
				return
			}
		}
	}
}

// reduced has three ranks, of which the last is behind wires, reduce again and again.
// It gives the first error of each, or what is wrong with a result.
func reduced(t *testing.T, w *wires, times, elements int) []error {
	const size = 3
	configs, err := engine.Listen(size, func() ([]engine.Way, error) {
		way, err := tcp.Listen("127.0.0.1:0")
		return []engine.Way{way}, err
	})
	if err != nil {
		t.Fatal(err)
	}
	for r := range configs {
		c := &configs[r]
		c.Rank, c.Size, c.Coordinator, c.Run, c.Identity = r, size, configs[0].Addr(), t.Name(), "a test"
		c.Rendezvous, c.Silence, c.Checksum, c.Options = 20*time.Second, 2*time.Second, true, comm.Options{Deadline: 3 * time.Second}
	}
	configs[size-1].Ways[0].Dial = w.dial
	ends, err := engine.JoinAll(t.Context(), configs, host)
	if err != nil {
		t.Fatal(err)
	}
	errs := make([]error, size)
	var all sync.WaitGroup
	for r, c := range ends {
		all.Go(func() {
			defer c.Close()
			for n := 0; n < times && errs[r] == nil; n++ {
				if n == 10 {
					w.begin()
				}
				errs[r] = once(t.Context(), c, r, n, elements)
			}
		})
	}
	all.Wait()
	return errs
}

// once reduces and looks at the result.
func once(ctx context.Context, c comm.Communicator, rank, n, elements int) error {
	m := commtest.Memory{}
	buf, err := m.Alloc(elements)
	if err != nil {
		return err
	}
	x, v := kernels.Flat(buf), make([]float32, elements)
	for i := range v {
		v[i] = float32(i%97 + n + rank)
	}
	m.Write(x, v)
	if err := c.AllReduce(ctx, x, kernels.Sum); err != nil {
		return err
	}
	if err := m.Read(v, x); err != nil {
		return err
	}
	for i, got := range v {
		if want := float32(3*(i%97+n) + 3); got != want {
			return fmt.Errorf("reduction %d, element %d: %v, want %v", n, i, got, want)
		}
	}
	return nil
}

// Links that are slow change nothing; what is lost or changed on one ends all ranks, and
// they say between whom.
func TestFaultyLinks(t *testing.T) {
	for _, x := range []struct {
		fault string
		data  bool
		is    error  // nil: nothing goes wrong
		says  string // by all
	}{
		{late, false, nil, ""},
		{crumbs, false, nil, ""},
		{severed, true, comm.ErrLost, "rank 2"},
		{severed, false, comm.ErrLost, "rank 2"},
		{silent, true, comm.ErrDeadline, "rank 2"},
		{silent, false, comm.ErrLost, "rank 2"},
		{bent, true, comm.ErrCorrupt, "rank 2"},
	} {
		t.Run(fmt.Sprintf("%s, data alone %v", x.fault, x.data), func(t *testing.T) {
			t.Parallel()
			begun := time.Now()
			times := 40
			if x.is != nil {
				times = 1 << 20
			}
			errs := reduced(t, &wires{fault: x.fault, data: x.data}, times, 5000)
			if took := time.Since(begun); took > 12*time.Second {
				t.Errorf("it took %v", took)
			}
			for r, err := range errs {
				t.Logf("rank %d: %v", r, err)
				if x.is == nil && err != nil || !errors.Is(err, x.is) || err != nil && !strings.Contains(err.Error(), x.says) {
					t.Errorf("rank %d: %v, want %v of %s", r, err, x.is, x.says)
				}
			}
		})
	}
}
