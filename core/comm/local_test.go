package comm_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/comm/commtest"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/kernels"
)

func host(int) kernels.Backend { return commtest.Host{} }

func world(t testing.TB, size int, opts comm.LocalOptions) []comm.Communicator {
	t.Helper()
	if opts.Deadline == 0 {
		opts.Deadline = 10 * time.Second
	}
	comms, err := comm.NewLocal(size, host, opts)
	if err != nil {
		t.Fatal(err)
	}
	return comms
}

// each runs f on all ranks at once and returns their errors, by rank.
func each(comms []comm.Communicator, f func(c comm.Communicator) error) []error {
	errs := make([]error, len(comms))
	var all sync.WaitGroup
	for i, c := range comms {
		all.Go(func() { errs[i] = f(c) })
	}
	all.Wait()
	return errs
}

// must fails the test unless f succeeds on all ranks.
func must(t testing.TB, comms []comm.Communicator, f func(c comm.Communicator) error) {
	t.Helper()
	for r, err := range each(comms, f) {
		if err != nil {
			t.Fatalf("rank %d: %v", r, err)
		}
	}
}

func vector(x ...float32) kernels.Tensor {
	b, err := commtest.Host{}.Alloc(len(x))
	if err != nil {
		panic(err)
	}
	t := kernels.Flat(b)
	commtest.Host{}.Write(t, x)
	return t
}

func read(t kernels.Tensor) []float32 {
	x := make([]float32, t.Len())
	if err := (commtest.Host{}).Read(x, t); err != nil {
		panic(err)
	}
	return x
}

func TestNewLocalRefuses(t *testing.T) {
	for name, open := range map[string]func() ([]comm.Communicator, error){
		"no ranks":      func() ([]comm.Communicator, error) { return comm.NewLocal(0, host, comm.LocalOptions{}) },
		"negative size": func() ([]comm.Communicator, error) { return comm.NewLocal(-1, host, comm.LocalOptions{}) },
		"unknown algorithm": func() ([]comm.Communicator, error) {
			return comm.NewLocal(1, host, comm.LocalOptions{Algorithm: "mesh"})
		},
		"negative deadline": func() ([]comm.Communicator, error) { return comm.NewLocal(1, host, comm.LocalOptions{Deadline: -1}) },
		"no backend": func() ([]comm.Communicator, error) {
			return comm.NewLocal(1, func(int) kernels.Backend { return nil }, comm.LocalOptions{})
		},
	} {
		if comms, err := open(); err == nil || comms != nil {
			t.Errorf("%s: got %v, %v; want an error", name, comms, err)
		}
	}
}

// foldAll is the all-reduce of single elements, as bits, on rank 0.
func foldAll(t *testing.T, algo comm.Algorithm, op kernels.Op, x []float32) uint32 {
	var got uint32
	must(t, world(t, len(x), comm.LocalOptions{Algorithm: algo}), func(c comm.Communicator) error {
		v := vector(x[c.Rank()])
		err := c.AllReduce(t.Context(), v, op)
		if c.Rank() == 0 {
			got = kernels.Bits(read(v)[0])
		}
		return err
	})
	return got
}

// The documented limits: the star has the tree's bits up to three ranks, the
// ring up to two; one rank more and an input shows the difference.
func TestWhereOtherAlgorithmsEqualTheTree(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	inputs := make([][]float32, 20)
	for i := range inputs {
		for range 8 {
			inputs[i] = append(inputs[i], float32(random.NormFloat64()))
		}
	}
	for algo, limit := range map[comm.Algorithm]int{comm.Star: 3, comm.Ring: 2} {
		for n := 1; n <= 8; n++ {
			equal := true
			for _, x := range inputs {
				equal = equal && foldAll(t, algo, kernels.Sum, x[:n]) == foldAll(t, comm.Tree, kernels.Sum, x[:n])
			}
			if want := n <= limit; equal != want {
				t.Errorf("%s of %d ranks equals the tree: %t, want %t", algo, n, equal, want)
			}
		}
	}
}

func TestMaximumOfOneRankIsThatOfReduce(t *testing.T) {
	for _, algo := range []comm.Algorithm{comm.Tree, comm.Ring, comm.Star} {
		got := foldAll(t, algo, kernels.Max, []float32{float32(math.NaN())})
		if want := math.Float32bits(float32(math.Inf(-1))); got != want {
			t.Errorf("%s: maximum of one NaN has bits %#x, want %#x", algo, got, want)
		}
	}
}

func TestRecords(t *testing.T) {
	var mu sync.Mutex
	byRank := map[int][]comm.Record{}
	comms := world(t, 3, comm.LocalOptions{Observe: func(r comm.Record) {
		mu.Lock()
		defer mu.Unlock()
		byRank[r.Rank] = append(byRank[r.Rank], r)
	}})
	label := comm.Label{Group: "dp", Tensor: "w", Lo: 3, Hi: 8}
	must(t, comms, func(c comm.Communicator) error {
		ctx := comm.WithLabel(t.Context(), label)
		if err := c.AllReduce(ctx, vector(1, 2, 3, 4, 5), kernels.Max); err != nil {
			return err
		}
		g, err := c.Split(t.Context(), c.Rank()/2, -c.Rank())
		if err != nil {
			return err
		}
		if err := g.Broadcast(t.Context(), vector(1, 2), 0); err != nil {
			return err
		}
		switch c.Rank() {
		case 0:
			return c.Send(t.Context(), vector(1, 2, 3), 2)
		case 2:
			return c.Recv(t.Context(), vector(1, 2, 3), 0)
		}
		return nil
	})
	world := []int{0, 1, 2}
	want := []comm.Record{
		{Op: comm.OpAllReduce, Group: world, Count: 5, Bytes: 27, Peer: -1, Reduction: kernels.Max, Label: label},
		{Op: comm.OpSplit, Group: world, Seq: 1, Peer: -1},
		{Op: comm.OpBroadcast, Group: []int{1, 0}, Count: 2, Bytes: 4, Peer: 1},
		{Op: comm.OpSend, Group: world, Count: 3, Bytes: 12, Peer: 2},
	}
	if diff := cmp.Diff(want, byRank[0]); diff != "" {
		t.Errorf("records of rank 0 (-want +got):\n%s", diff)
	}
	recv := byRank[2][3]
	if recv.Op != comm.OpRecv || recv.Peer != 0 || recv.Bytes != 0 || recv.Seq != 0 {
		t.Errorf("record of the receiver: %+v", recv)
	}
}

func TestRecordOfAFailure(t *testing.T) {
	var mu sync.Mutex
	var got []comm.Record
	comms := world(t, 2, comm.LocalOptions{Observe: func(r comm.Record) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, r)
	}})
	errs := each(comms, func(c comm.Communicator) error {
		if c.Rank() == 1 {
			return c.Broadcast(t.Context(), vector(1), 7)
		}
		return c.Barrier(t.Context())
	})
	for _, r := range got {
		if r.Err == nil || !errors.Is(r.Err, errs[r.Rank]) {
			t.Errorf("record of rank %d holds %v, the operation returned %v", r.Rank, r.Err, errs[r.Rank])
		}
	}
	if len(got) != 2 {
		t.Errorf("%d records, want 2", len(got))
	}
}

// Shares add up to the total for every operation, also beyond 2^31 elements.
func TestShareBytes(t *testing.T) {
	ops := []string{comm.OpAllReduce, comm.OpReduceScatter, comm.OpAllGather, comm.OpBroadcast, comm.OpBarrier, comm.OpAllReduceInt}
	for _, op := range ops {
		for size := 1; size <= 9; size++ {
			for _, count := range []int64{0, 1, 7, 1<<31 - 1, 1<<31 + 1, 1 << 40} {
				sum, least, most := int64(0), int64(math.MaxInt64), int64(0)
				for r := range size {
					s := comm.ShareBytes(op, count, shard.Part{Index: r, Size: size})
					sum, least, most = sum+s, min(least, s), max(most, s)
				}
				if sum != comm.WireBytes(op, count, size) || most-least > 1 {
					t.Errorf("%s of %d on %d ranks: shares from %d to %d add up to %d, want %d", op, count, size, least, most, sum, comm.WireBytes(op, count, size))
				}
			}
		}
	}
	if got := comm.WireBytes(comm.OpAllReduce, 1<<33+1, 4); got != 2*3*4*(1<<33+1) {
		t.Errorf("all-reduce of 2^33+1 elements moves %d bytes", got)
	}
	if got := comm.ShareBytes(comm.OpSend, 1<<31+5, shard.Part{Index: 3, Size: 8}); got != 4*(1<<31+5) {
		t.Errorf("send of 2^31+5 elements moves %d bytes", got)
	}
}

func TestCheckBounds(t *testing.T) {
	huge := 1<<33 + 3
	got, err := comm.CheckBounds(nil, huge, 4)
	if want := []int{0, 1<<31 + 1, 1<<32 + 2, 3<<31 + 3, huge}; err != nil || !slices.Equal(got, want) {
		t.Errorf("bounds of %d elements are %v, %v; want %v", huge, got, err, want)
	}
	if _, err := comm.CheckBounds([]int{0, huge - 1, huge}, huge, 2); err != nil {
		t.Errorf("uneven bounds of %d elements: %v", huge, err)
	}
	for _, bad := range [][]int{{}, {0, 4}, {1, 2, 4}, {0, 2, 3}, {0, 5, 4}, {0, -1, 4}, {0, 2, 4, 4}} {
		if _, err := comm.CheckBounds(bad, 4, 2); err == nil {
			t.Errorf("bounds %v of 4 elements on 2 ranks are accepted", bad)
		}
	}
}

func TestDeadlineNamesTheMissing(t *testing.T) {
	for _, algo := range []comm.Algorithm{comm.Tree, comm.Ring} {
		comms := world(t, 4, comm.LocalOptions{Algorithm: algo, Deadline: 30 * time.Millisecond})
		errs := each(comms, func(c comm.Communicator) error {
			if c.Rank()%2 == 1 {
				return nil
			}
			return c.AllReduce(t.Context(), vector(1), kernels.Sum)
		})
		for _, r := range []int{0, 2} {
			var e *comm.Error
			if !errors.As(errs[r], &e) || !errors.Is(e, comm.ErrDeadline) || e.Peer != 1 || !strings.Contains(e.Error(), "ranks 1, 3 did not come to all-reduce of 1 elements") {
				t.Errorf("%s, rank %d: %v", algo, r, errs[r])
			}
		}
	}
}

func TestDeadlineOfAMessage(t *testing.T) {
	comms := world(t, 3, comm.LocalOptions{Deadline: 30 * time.Millisecond})
	err := comms[2].Send(t.Context(), vector(1), 1)
	var e *comm.Error
	if !errors.As(err, &e) || !errors.Is(e, comm.ErrDeadline) || e.Peer != 1 || e.Op != comm.OpSend || e.Rank != 2 {
		t.Errorf("send to a silent rank: %v", err)
	}
}

// Ranks that wait for each other's messages are found at once, not at the
// deadline.
func TestCrossedMessagesAreNamed(t *testing.T) {
	next := func(c comm.Communicator) int { return (c.Rank() + 1) % c.Size() }
	for name, f := range map[string]func(c comm.Communicator) error{
		"all send first":    func(c comm.Communicator) error { return c.Send(t.Context(), vector(1), next(c)) },
		"all receive first": func(c comm.Communicator) error { return c.Recv(t.Context(), vector(1), next(c)) },
		"message meets collective": func(c comm.Communicator) error {
			if c.Rank() == 1 {
				return c.Barrier(t.Context())
			}
			return c.Send(t.Context(), vector(1), (c.Rank()+1)%2)
		},
	} {
		for r, err := range each(world(t, 3, comm.LocalOptions{Deadline: time.Minute}), f) {
			if !errors.Is(err, comm.ErrMismatch) || !strings.Contains(err.Error(), "rank 0 called") || !strings.Contains(err.Error(), "rank 1 called") {
				t.Errorf("%s: rank %d: %v", name, r, err)
			}
		}
	}
}

func TestTwoOperationsAtOnceAreRefused(t *testing.T) {
	comms := world(t, 2, comm.LocalOptions{})
	first := make(chan error)
	go func() { first <- comms[0].Barrier(t.Context()) }()
	var err error
	for err == nil { // until the other goroutine waits in the barrier, this one may be first
		err = comms[0].Recv(t.Context(), vector(), 1)
	}
	if e := <-first; !errors.Is(err, comm.ErrMismatch) || !errors.Is(e, comm.ErrMismatch) {
		t.Errorf("got %v and %v", err, e)
	}
}

// A rank that panics and closes in its defer ends the others.
func TestPanicEndsPeers(t *testing.T) {
	comms := world(t, 3, comm.LocalOptions{Deadline: time.Minute})
	errs := each(comms, func(c comm.Communicator) (err error) {
		g, err := c.Split(t.Context(), 0, 0)
		if err != nil {
			return err
		}
		defer func() { _ = recover() }()
		defer c.Close()
		if c.Rank() == 1 {
			panic("bug")
		}
		return g.Barrier(t.Context())
	})
	for _, r := range []int{0, 2} {
		var e *comm.Error
		if !errors.As(errs[r], &e) || !errors.Is(e, comm.ErrLeft) || e.Peer != 1 {
			t.Errorf("rank %d: %v", r, errs[r])
		}
	}
}

// brittle is a backend whose Reduce panics, or whose memory reports a fault.
type brittle struct {
	commtest.Host
	panics bool
	fault  error
}

func (b *brittle) Reduce(dst, src []kernels.Tensor, op kernels.Op) {
	if b.panics {
		panic("kernels: bug")
	}
	b.Host.Reduce(dst, src, op)
}

func (b *brittle) Sync() error { return b.fault }

func TestFaultOfABackendEndsAll(t *testing.T) {
	fault := errors.New("device lost")
	for _, algo := range []comm.Algorithm{comm.Tree, comm.Ring, comm.Star} {
		for _, panics := range []bool{false, true} {
			bes := []*brittle{{}, {}, {}}
			bad := 1
			if algo == comm.Star {
				bad = 0 // the one that adds
			}
			comms, err := comm.NewLocal(3, func(r int) kernels.Backend { return bes[r] }, comm.LocalOptions{Algorithm: algo, Deadline: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			bes[bad].panics = panics
			if !panics {
				bes[bad].fault = fault
			}
			errs := each(comms, func(c comm.Communicator) (err error) {
				defer func() {
					if recover() != nil {
						err = c.Barrier(t.Context())
					}
				}()
				return c.AllReduce(t.Context(), vector(1, 2, 3, 4), kernels.Sum)
			})
			want := fault
			if panics {
				want = comm.ErrPanicked
			}
			for r, err := range errs {
				var e *comm.Error
				if !errors.As(err, &e) || !errors.Is(e, want) || e.Peer != bad {
					t.Errorf("%s, panic %t: rank %d: %v", algo, panics, r, err)
				}
			}
		}
	}
}

// A context that ends while peers work on this rank's buffers does not let the
// operation return early: its result is complete.
func TestNoReturnWhilePeersWork(t *testing.T) {
	slow := &slowReduce{started: make(chan struct{}), release: make(chan struct{})}
	bes := []kernels.Backend{commtest.Host{}, slow}
	comms, err := comm.NewLocal(2, func(r int) kernels.Backend { return bes[r] }, comm.LocalOptions{Deadline: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-slow.started
		cancel()
		time.Sleep(5 * time.Millisecond)
		close(slow.release)
	}()
	must(t, comms, func(c comm.Communicator) error {
		x := vector(1, 2)
		if err := c.AllReduce(ctx, x, kernels.Sum); err != nil {
			return err
		}
		if diff := cmp.Diff([]float32{2, 4}, read(x)); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
}

// slowReduce waits in Reduce until it is released.
type slowReduce struct {
	commtest.Host
	started, release chan struct{}
}

func (s *slowReduce) Reduce(dst, src []kernels.Tensor, op kernels.Op) {
	close(s.started)
	<-s.release
	s.Host.Reduce(dst, src, op)
}

func TestMismatchNamesEveryCall(t *testing.T) {
	errs := each(world(t, 4, comm.LocalOptions{}), func(c comm.Communicator) error {
		if c.Rank() == 1 {
			return c.Broadcast(t.Context(), vector(1, 2), 3)
		}
		return c.AllReduce(t.Context(), vector(1, 2), kernels.Sum)
	})
	const want = "on rank 2, because of rank 1: ranks called operations that do not fit: " +
		"ranks 0, 2, 3 called all-reduce of 2 elements (sum); rank 1 called broadcast of 2 elements from rank 3"
	if errs[2] == nil || !strings.HasSuffix(errs[2].Error(), want) {
		t.Errorf("got  %v\nwant %v", errs[2], want)
	}
}

func TestNoGoroutineIsLeft(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 20 {
		comms := world(t, 4, comm.LocalOptions{})
		each(comms, func(c comm.Communicator) error {
			defer c.Close()
			q := comm.NewQueue(t.Context())
			q.Submit(func(ctx context.Context) error { return c.Barrier(ctx) })
			if err := q.Close(); err != nil || c.Rank() == 3 {
				return err
			}
			return c.AllReduce(t.Context(), vector(1, 2, 3), kernels.Sum) // rank 3 has left
		})
	}
	for range 100 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Errorf("%d goroutines before, %d after", before, runtime.NumGoroutine())
}

// The cost of meeting, and of moving.
func BenchmarkAllReduce(b *testing.B) {
	for _, n := range []int{1, 1 << 16} {
		for _, size := range []int{2, 8} {
			b.Run(fmt.Sprintf("elements=%d/ranks=%d", n, size), func(b *testing.B) {
				comms := world(b, size, comm.LocalOptions{})
				b.SetBytes(int64(4 * n))
				must(b, comms, func(c comm.Communicator) error {
					x := vector(make([]float32, n)...)
					for range b.N {
						if err := c.AllReduce(b.Context(), x, kernels.Sum); err != nil {
							return err
						}
					}
					return nil
				})
			})
		}
	}
}
