package shm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/comm/engine"
	"github.com/lockstep-ml/lockstep/kernels"
)

// ends are how a world of TestNothingIsLeft does.
var ends = []func(ctx context.Context, c comm.Communicator, rank int) error{
	func(context.Context, comm.Communicator, int) error { return nil },
	func(ctx context.Context, c comm.Communicator, rank int) error { // in an operation of its peers
		if rank == 1 {
			return nil
		}
		return c.Barrier(ctx)
	},
	func(ctx context.Context, c comm.Communicator, rank int) error { // while another group is open
		sub, err := c.Split(ctx, rank%2, rank)
		if err == nil {
			err = sub.Barrier(ctx)
		}
		return err
	},
	func(ctx context.Context, c comm.Communicator, rank int) error { // of a mismatch
		if rank == 2 {
			return c.Barrier(ctx)
		}
		return c.AllReduceInt(ctx, []uint64{1}, kernels.Sum)
	},
	func(ctx context.Context, c comm.Communicator, rank int) error { // stopped
		ctx, stop := context.WithTimeout(ctx, time.Millisecond)
		defer stop()
		if rank == 0 {
			<-ctx.Done()
		}
		return c.Barrier(ctx)
	},
}

// Worlds leave nothing behind, however they ended: no descriptor, mapping or goroutine,
// no file, and no name at which somebody listens.
func TestNothingIsLeft(t *testing.T) {
	files := func() string {
		all, err := os.ReadDir("/dev/shm")
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		var own []string
		for _, f := range all {
			if strings.Contains(f.Name(), "lockstep") {
				own = append(own, f.Name())
			}
		}
		return strings.Join(own, " ")
	}
	be := InArena(readable(t))
	const ours = 1                                         // mapping: the arena
	if err := world(t, be, 0, new([]string)); err != nil { // what the first takes, a poller and the like, stays
		t.Fatal(err)
	}
	var names []string
	before, goroutines, inShm := levelNow(t), runtime.NumGoroutine(), files()
	for n := range 100 {
		if err := world(t, be, n, &names); err != nil {
			t.Fatalf("world %d: %v", n, err)
		}
	}
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) { // connections end a moment later
		after := levelNow(t)
		left := listening(t, names)
		if after.descriptors <= before.descriptors && after.mappings == ours && runtime.NumGoroutine() <= goroutines && len(left) == 0 {
			break
		}
		if time.Now().After(until) {
			b := make([]byte, 1<<16)
			t.Fatalf("%+v and %d goroutines before, %+v and %d after; %q listen\n%s", before, goroutines, after, runtime.NumGoroutine(), left, b[:runtime.Stack(b, true)])
		}
	}
	if now := files(); now != inShm || len(names) != 300 {
		t.Errorf("%d names; in /dev/shm were %q, and are %q", len(names), inShm, now)
	}
}

// listening lists the names of sockets that are still there.
func listening(t *testing.T, names []string) (left []string) {
	sockets, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if strings.Contains(string(sockets), n) {
			left = append(left, n)
		}
	}
	return left
}

// world opens a world of three ranks, in which something is reduced before it ends in
// the n-th way, and adds the names at which its ranks listen.
func world(t *testing.T, be kernels.Backend, n int, names *[]string) error {
	const size = 3
	configs, err := engine.Listen(size, func() ([]engine.Way, error) {
		w, err := Listen()
		if err == nil {
			*names = append(*names, w.Listener.Addr().String())
		}
		return []engine.Way{w}, err
	})
	if err != nil {
		return err
	}
	for r := range configs {
		c := &configs[r]
		c.Rank, c.Size, c.Coordinator, c.Run, c.Options = r, size, configs[0].Addr(), fmt.Sprint(n), comm.Options{Deadline: 10 * time.Second}
		c.Silence = 3 * time.Second // of that a sixth is how long a rank's last goroutine stays
	}
	comms, err := engine.JoinAll(t.Context(), configs, func(int) kernels.Backend { return be })
	if err != nil {
		return err
	}
	errs := make([]error, size)
	var all sync.WaitGroup
	for r, c := range comms {
		all.Go(func() {
			defer c.Close()
			buf, err := be.Alloc(leastTaken / 4)
			if err == nil {
				defer be.Free(buf)
				err = c.AllReduce(t.Context(), kernels.Flat(buf), kernels.Sum)
			}
			if errs[r] = err; err == nil {
				how := 0
				if n%4 == 0 { // what goes wrong takes its time
					how = n / 4 % len(ends)
				}
				_ = ends[how](t.Context(), c, r) // however it ends
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
