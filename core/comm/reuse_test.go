package comm_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/comm/commtest"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
)

// unmoved is a host that does not compute: what a collective costs beside its
// kernels.
type unmoved struct{ commtest.Memory }

func (unmoved) Reduce(_, _ []kernels.Tensor, _ kernels.Op) {}

// everyOperation runs the operations of a training step on buffers made once.
func everyOperation(c, beside comm.Communicator, q *comm.Queue) func(ctx context.Context) error {
	var labels comm.Labels
	x, bounds, ints := vector(1, 2, 3, 4, 5, 6, 7), []int{0, 3, 3, 7}, make([]uint64, 5)
	own := x.Range(bounds[c.Rank()], bounds[c.Rank()+1])
	queued := func(ctx context.Context) error { return beside.AllReduce(ctx, x, kernels.Max) }
	return func(ctx context.Context) error {
		q.SubmitFor(comm.Label{Group: names.DP}, queued)
		if err := q.Wait(); err != nil {
			return err
		}
		ctx = labels.On(ctx, comm.Label{Group: names.DP, Tensor: "x"})
		err := errors.Join(
			c.AllReduce(ctx, x, kernels.Sum), c.ReduceScatter(ctx, own, x, bounds, kernels.Sum), c.AllGather(ctx, x, own, bounds),
			c.Broadcast(ctx, x, 1), c.AllReduceInt(ctx, ints, kernels.Sum), c.Barrier(ctx))
		switch c.Rank() {
		case 0:
			return errors.Join(err, c.Send(ctx, x, 2))
		case 2:
			return errors.Join(err, c.Recv(ctx, x, 0))
		}
		return err
	}
}

// An operation that has been called before allocates nothing. The tree alone:
// the other algorithms are for comparison.
//
// A goroutine that waits in a select takes records of the runtime from the
// processor it stops on and gives them to the one it goes on from. A processor
// that runs out allocates one while others hold up to 128 each, so a run costs at
// most that many per processor. Two processors and 2000 rounds keep this under
// 0.13 a round, where one allocation by one rank is 1.
func TestOperationsDoNotAllocate(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	mallocs := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.Mallocs
	}
	const rounds = 2000
	comms, err := comm.NewLocal(3, func(int) kernels.Backend { return unmoved{} }, comm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for r, c := range comms {
		comms[r] = comm.Recorded(c, func(comm.Record) {})
	}
	var before, after uint64
	must(t, comms, func(c comm.Communicator) error {
		beside, err := c.Split(t.Context(), 0, 0)
		if err != nil {
			return err
		}
		q := comm.NewQueue(t.Context())
		defer q.Close()
		run := everyOperation(c, beside, q)
		for i := range rounds + 20 {
			if c.Rank() == 1 && i == 20 {
				before = mallocs()
			}
			if err := run(t.Context()); err != nil {
				return err
			}
		}
		if c.Rank() == 1 {
			after = mallocs()
		}
		return nil
	})
	if n := float64(after-before) / rounds; n > 0.5 {
		t.Errorf("%.2f allocations per round of three ranks, want none", n)
	}
}

// A rank whose context ends while the last peer arrives goes on with the
// collective or fails with all others; if it goes on, what woke it up late wakes
// up nothing that follows.
func TestNoStaleWakeUp(t *testing.T) {
	went := map[string]int{}
	for i := range 600 {
		for name, op := range map[string]func(ctx context.Context, c comm.Communicator, x kernels.Tensor) error{
			"all-reduce": func(ctx context.Context, c comm.Communicator, x kernels.Tensor) error {
				return c.AllReduce(ctx, x, kernels.Sum)
			},
			"barrier": func(ctx context.Context, c comm.Communicator, _ kernels.Tensor) error { return c.Barrier(ctx) },
			"receive": func(ctx context.Context, c comm.Communicator, x kernels.Tensor) error {
				if c.Rank() == 0 {
					return c.Recv(ctx, x, 1)
				}
				return c.Send(ctx, x, 0)
			},
			"send": func(ctx context.Context, c comm.Communicator, x kernels.Tensor) error {
				if c.Rank() == 0 {
					return c.Send(ctx, x, 1)
				}
				return c.Recv(ctx, x, 0)
			},
		} {
			if disturbed(t, fmt.Sprint(name, " ", i), op) {
				went[name]++
			}
		}
	}
	t.Logf("operations that went on: %v of 600 each", went)
	if len(went) < 4 {
		t.Errorf("operations went on for %v only", went)
	}
}

// disturbed runs op once while rank 0's context ends as rank 1 comes, and
// reports whether it went on; then plain ones, with checked results.
func disturbed(t *testing.T, name string, op func(context.Context, comm.Communicator, kernels.Tensor) error) bool {
	t.Helper()
	comms := world(t, 2, comm.Options{Deadline: 5 * time.Second})
	ended, cancel := context.WithCancel(t.Context())
	defer cancel()
	errs := each(comms, func(c comm.Communicator) error {
		ctx := ended
		if c.Rank() == 1 {
			ctx = t.Context()
			runtime.Gosched() // rank 0 waits by now
			cancel()
		}
		if err := op(ctx, c, vector(1, 2)); err != nil {
			return err
		}
		for i := range 4 {
			x := vector(1, float32(i), float32(c.Rank()))
			if err := c.AllReduce(t.Context(), x, kernels.Sum); err != nil {
				return fmt.Errorf("all-reduce %d afterwards: %w", i, err)
			}
			if diff := cmp.Diff([]float32{2, 2 * float32(i), 1}, read(x)); diff != "" {
				return fmt.Errorf("all-reduce %d afterwards: %s", i, diff)
			}
			if err := op(t.Context(), c, x); err != nil {
				return fmt.Errorf("the operation again: %w", err)
			}
		}
		return nil
	})
	if (errs[0] == nil) != (errs[1] == nil) || errs[0] != nil && !errors.Is(errs[0], context.Canceled) {
		t.Fatalf("%s: %v and %v", name, errs[0], errs[1])
	}
	return errs[0] == nil
}

// Labels gives one context as long as it is asked on the same one, and the
// label of the latest operation.
func TestLabels(t *testing.T) {
	type key struct{}
	a, b := context.WithValue(t.Context(), key{}, "a"), context.WithValue(t.Context(), key{}, "b")
	var labels comm.Labels
	first := labels.On(a, comm.Label{Tensor: "x", Step: 1})
	if got := comm.LabelOf(first); got != (comm.Label{Tensor: "x", Step: 1}) || first.Value(key{}) != "a" {
		t.Errorf("first: %+v on %v", got, first.Value(key{}))
	}
	if again := labels.On(a, comm.Label{Tensor: "y"}); again != first || comm.LabelOf(again).Tensor != "y" {
		t.Errorf("on the same context: %+v, the same context: %t", comm.LabelOf(again), again == first)
	}
	if other := labels.On(b, comm.Label{Tensor: "z"}); other.Value(key{}) != "b" || comm.LabelOf(other).Tensor != "z" {
		t.Errorf("on another context: %+v on %v", comm.LabelOf(other), other.Value(key{}))
	}
	if got := comm.LabelOf(t.Context()); got != (comm.Label{}) {
		t.Errorf("without a label: %+v", got)
	}
}

// However submissions and runs interleave, every function runs once, in order,
// under its own label.
func TestQueueOrderWhileItRuns(t *testing.T) {
	for every := 1; every <= 9; every++ {
		q := comm.NewQueue(t.Context())
		gate := make(chan struct{})
		var mu sync.Mutex
		var got []int
		ran := func() int { mu.Lock(); defer mu.Unlock(); return len(got) }
		const n = 100
		opened := 0
		for i := range n {
			q.SubmitFor(comm.Label{Step: i}, func(ctx context.Context) error {
				<-gate
				mu.Lock()
				defer mu.Unlock()
				got = append(got, comm.LabelOf(ctx).Step)
				return nil
			})
			if i%every == every-1 {
				gate <- struct{}{}
				for opened++; ran() < opened; {
					runtime.Gosched()
				}
			}
		}
		close(gate)
		if err := q.Close(); err != nil || len(got) != n || !slices.IsSorted(got) {
			t.Errorf("one run every %d submissions: %v, order %v", every, err, got)
		}
	}
}
