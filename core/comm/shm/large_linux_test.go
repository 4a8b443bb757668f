package shm_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/comm/commtest"
	"github.com/lockstep-ml/lockstep/core/comm/engine"
	"github.com/lockstep-ml/lockstep/core/comm/shm"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/internal/race"
	"github.com/lockstep-ml/lockstep/kernels"
)

// apart is a backend that works on its own memory alone: what comes is copied to it.
type apart struct{ kernels.Backend }

// summed is a comm.World over shared memory with sums of all payloads.
func summed(ctx context.Context, size int, be func(int) kernels.Backend, o comm.Options) ([]comm.Communicator, error) {
	configs, err := engine.Listen(size, func() ([]engine.Way, error) {
		w, err := shm.Listen()
		return []engine.Way{w}, err
	})
	for r := range configs {
		c := &configs[r]
		c.Rank, c.Size, c.Coordinator, c.Run, c.Checksum, c.Options = r, size, configs[0].Addr(), "sums", true, o
	}
	if err != nil {
		return nil, err
	}
	return engine.JoinAll(ctx, configs, be)
}

// TestLarge: vectors larger than a ring have the bits that they have in one memory,
// whether what comes is used where it lies or not.
func TestLarge(t *testing.T) {
	const n = 5<<18 + 5
	type world struct {
		algo names.Algorithm
		size int
	}
	var worlds []world
	for _, algo := range []names.Algorithm{names.Tree, names.Ring, names.Star} {
		worlds = append(worlds, world{algo, 2}, world{algo, 3})
	}
	pool, err := shm.Memory()
	if err != nil {
		t.Fatal(err)
	}
	posts := &atomic.Int64{}
	defer func() {
		if posts.Load() == 0 {
			t.Error("nothing was read in place")
		}
	}()
	of := func(b kernels.Backend) func(int) kernels.Backend { return func(int) kernels.Backend { return b } }
	for _, w := range race.Some(3, worlds) {
		o := comm.Options{Algorithm: w.algo, Deadline: 30 * time.Second}
		want := all(t, nil, w.size, host, o, n)
		for name, got := range map[string][][]float32{
			"in place":              all(t, shm.Local, w.size, host, o, n),
			"copied":                all(t, shm.Local, w.size, func(int) kernels.Backend { return apart{commtest.Memory{}} }, o, n),
			"summed":                all(t, summed, w.size, host, o, n),
			"read in place":         all(t, shm.Posted(false, posts), w.size, of(shm.InArena(pool)), o, n),
			"read in place, summed": all(t, shm.Posted(true, posts), w.size, of(shm.InArena(pool)), o, n),
			"read, and copied":      all(t, shm.Posted(false, posts), w.size, of(apart{shm.InArena(pool)}), o, n),
		} {
			for r := range got {
				for i := range got[r] {
					if kernels.Bits(got[r][i]) != kernels.Bits(want[r][i]) {
						t.Fatalf("%s of %d ranks, %s: element %d of rank %d is %v, want %v", w.algo, w.size, name, i, r, got[r][i], want[r][i])
					}
				}
			}
		}
	}
}

// all does what moves much, on every rank, and gives what the ranks have then.
func all(t *testing.T, w comm.World, size int, be func(int) kernels.Backend, o comm.Options, n int) [][]float32 {
	t.Helper()
	comms, err := w.Open(t.Context(), size, be, o)
	if err != nil {
		t.Fatal(err)
	}
	out := make([][]float32, size)
	var done sync.WaitGroup
	for r, c := range comms {
		done.Go(func() {
			defer c.Close()
			var err error
			if out[r], err = each(t.Context(), c, be(r), n); err != nil {
				t.Error(err)
			}
		})
	}
	done.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return out
}

func each(ctx context.Context, c comm.Communicator, be kernels.Backend, n int) ([]float32, error) {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(i%1009-500) / float32(1+(i+c.Rank())%7)
	}
	bufs := [3]kernels.Tensor{}
	for i := range bufs {
		b, err := be.Alloc(n)
		if err != nil {
			return nil, err
		}
		bufs[i] = kernels.Flat(b)
		be.Write(bufs[i], x)
	}
	defer func() {
		for _, b := range bufs {
			be.Free(b.Buf)
		}
	}()
	a, b, d := bufs[0], bufs[1], bufs[2]
	if err := c.AllReduce(ctx, a, kernels.Sum); err != nil {
		return nil, err
	}
	lo, hi := n*c.Rank()/c.Size(), n*(c.Rank()+1)/c.Size()
	bounds := make([]int, c.Size()+1)
	for r := range bounds {
		bounds[r] = n * r / c.Size()
	}
	own := d.Range(lo, hi)
	if err := c.ReduceScatter(ctx, own, b, bounds, kernels.Max); err != nil {
		return nil, err
	}
	if err := c.AllGather(ctx, d, own, bounds); err != nil {
		return nil, err
	}
	if err := message(ctx, c, a, b); err != nil {
		return nil, err
	}
	if err := c.Broadcast(ctx, b, c.Size()-1); err != nil {
		return nil, err
	}
	said := bytes.Repeat([]byte{byte(c.Rank())}, 5<<20+3+c.Rank()) // leaves what follows at an odd place
	got, err := c.AllGatherBytes(ctx, said)
	for r, g := range got {
		if want := bytes.Repeat([]byte{byte(r)}, 5<<20+3+r); !bytes.Equal(g, want) {
			return nil, fmt.Errorf("%d bytes of rank %d are not its own", len(g), r)
		}
	}
	if err == nil {
		err = c.AllReduce(ctx, b, kernels.Sum)
	}
	out := make([]float32, 3*n)
	for i, t := range bufs {
		if err == nil {
			err = be.Read(out[i*n:(i+1)*n], t)
		}
	}
	return out, err
}

// message sends a of rank 0 to the last rank, in b.
func message(ctx context.Context, c comm.Communicator, a, b kernels.Tensor) error {
	switch c.Rank() {
	case 0:
		return c.Send(ctx, a, c.Size()-1)
	case c.Size() - 1:
		return c.Recv(ctx, b, 0)
	}
	return nil
}
