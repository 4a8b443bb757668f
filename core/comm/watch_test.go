package comm_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/comm/commtest"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
)

// member is a rank of a watched world: its ends of the world, of a copy of it and
// of pairs of neighbours, and a queue of the copy's operations.
type member struct {
	ctx                context.Context
	world, copy, pairs comm.Communicator
	queue              *comm.Queue
}

// on labels an operation.
func (m *member) on(group names.Axis, tensor string, step int) context.Context {
	return comm.WithLabel(m.ctx, comm.Label{Group: group, Tensor: tensor, Step: step})
}

// watched runs f on every rank of a watched world and gives each rank's error.
// Nothing in it waits for a deadline.
func watched(t *testing.T, size int, f func(m *member) error) []error {
	t.Helper()
	watch := comm.NewWatch(size)
	comms, err := comm.NewLocal(size, func(int) kernels.Backend { return commtest.Memory{} }, comm.Options{Deadline: time.Hour, Watch: watch})
	if err != nil {
		t.Fatal(err)
	}
	errs := make([]error, size)
	var all sync.WaitGroup
	for r, c := range comms {
		all.Go(func() {
			ctx := watch.Enter(t.Context(), r)
			defer watch.Leave(ctx)
			defer c.Close()
			m := &member{ctx: ctx, world: comm.Recorded(c, func(comm.Record) {})}
			var e [2]error
			m.copy, e[0] = m.world.Split(ctx, 0, r)
			m.pairs, e[1] = m.world.Split(ctx, r/2, r)
			if errs[r] = errors.Join(e[:]...); errs[r] != nil {
				return
			}
			m.queue = comm.NewQueue(ctx)
			m.queue.Submit(func(context.Context) error { return nil })
			idle := m.queue.Wait()
			time.Sleep(time.Millisecond) // it waits for work by now
			errs[r] = errors.Join(idle, f(m), m.queue.Close())
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("ranks that wait for each other were not found")
	}
	return errs
}

// stuck checks that all ranks were told of a deadlock, because of a rank (-1 for
// none that can be told), in these words.
func stuck(t *testing.T, name string, errs []error, peer int, says ...string) {
	t.Helper()
	for r, err := range errs {
		var e *comm.Error
		if !errors.As(err, &e) || !errors.Is(err, comm.ErrDeadlock) || e.Peer != peer {
			t.Errorf("%s: rank %d: %v, want a deadlock because of rank %d", name, r, err, peer)
			continue
		}
		for _, s := range says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%s: rank %d: %v\nlacks %q", name, r, err, s)
			}
		}
	}
}

// Ranks that wait for each other in several groups are found at once, and the rank
// that did not come is named, not those that wait.
func TestDeadlockOverGroups(t *testing.T) {
	norm := func(m *member) error {
		return m.world.AllReduceInt(m.on(names.World, "norm", 3), make([]uint64, 2), kernels.Sum)
	}
	reduce := func(m *member) func(context.Context) error {
		return func(ctx context.Context) error { return m.copy.AllReduce(ctx, vector(1, 2), kernels.Sum) }
	}
	label := comm.Label{Group: names.DP, Tensor: "block.1", Step: 3, Overlap: true}
	for name, c := range map[string]struct {
		peer int
		says []string
		f    func(m *member) error
	}{
		"one leaves an operation out": {2, []string{"rank 2 did not come to all-reduce-int of norm (2 elements; group world of ranks 0, 1, 2, 3; operation 2, step 3), in which ranks 0, 1, 3 wait",
			"rank 2 waits in barrier (group dp of ranks 0, 1, 2, 3; operation 0, step 3)"}, func(m *member) error {
			if m.world.Rank() != 2 {
				if err := norm(m); err != nil {
					return err
				}
			}
			return m.copy.Barrier(m.on(names.DP, "", 3))
		}},
		"beside the computation": {1, []string{"rank 1 did not come to all-reduce of block.1 (2 elements; group dp of ranks 0, 1, 2, 3; operation 0, step 3; beside the computation), in which ranks 0, 2, 3 wait with their queues",
			"rank 1 waits in all-reduce-int of norm"}, func(m *member) error {
			if m.world.Rank() == 1 {
				if err := norm(m); err != nil {
					return err
				}
			}
			m.queue.SubmitFor(label, reduce(m))
			if err := m.queue.Wait(); err != nil {
				return err
			}
			return norm(m)
		}},
		"a message that is not sent": {2, []string{"rank 2 did not come to recv of activation (1 elements; group pp of ranks 2, 3; message 0 from rank 2 to rank 3, step 3), in which rank 3 waits",
			"rank 2 waits in all-reduce-int of norm"}, func(m *member) error {
			if m.world.Rank() == 3 {
				if err := m.pairs.Recv(m.on(names.PP, "activation", 3), vector(1), 0); err != nil {
					return err
				}
			}
			return norm(m)
		}},
	} {
		stuck(t, name, watched(t, 4, c.f), c.peer, c.says...)
	}
}

// Whoever waits for a function that nobody will run is told so.
func TestDeadlockInAQueue(t *testing.T) {
	errs := watched(t, 2, func(m *member) error {
		if m.world.Rank() == 0 {
			return m.world.Barrier(m.on(names.World, "", 0))
		}
		return m.queue.WaitFor(7)
	})
	for r, err := range errs {
		if !errors.Is(err, comm.ErrDeadlock) || !strings.Contains(err.Error(), "rank 1 did not come to barrier") ||
			!strings.Contains(err.Error(), "rank 1 waits for its own queue, which has nothing to do") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// Operations that do not fit are named as such, though one rank never comes to
// any.
func TestMismatchOfRanksThatAreStuck(t *testing.T) {
	errs := watched(t, 4, func(m *member) error {
		switch m.world.Rank() {
		case 0:
			return m.copy.Barrier(m.on(names.DP, "", 0))
		case 1:
			return m.world.Broadcast(m.on(names.World, "", 0), vector(1), 0)
		}
		return m.world.Barrier(m.on(names.World, "", 0))
	})
	for r, err := range errs {
		if !errors.Is(err, comm.ErrMismatch) || !strings.Contains(err.Error(), "rank 1 called broadcast") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// A rank that computes, or whose queue does, is waited for; and what a watch sees
// of healthy ranks is nothing.
func TestRanksThatComputeAreNoDeadlock(t *testing.T) {
	for round := range 50 {
		errs := watched(t, 4, func(m *member) error {
			slow := func() {
				if m.world.Rank() == round%4 {
					time.Sleep(200 * time.Microsecond) // the others wait by now
				}
			}
			for step := range 20 {
				m.queue.SubmitFor(comm.Label{Group: names.DP, Tensor: "x", Step: step, Overlap: true}, func(ctx context.Context) error {
					slow()
					return m.copy.AllReduce(ctx, vector(1, 2), kernels.Sum)
				})
				slow()
				if err := m.pairs.Barrier(m.on(names.TP, "", step)); err != nil {
					return err
				}
				if err := errors.Join(m.queue.Wait(), m.world.Barrier(m.on(names.World, "", step))); err != nil {
					return err
				}
				me, pair := m.pairs.Rank(), m.on(names.PP, "y", step)
				if err := []func(context.Context, kernels.Tensor, int) error{m.pairs.Send, m.pairs.Recv}[me](pair, vector(1), 1-me); err != nil {
					return err
				}
			}
			return nil
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
}

// A goroutine that the watch does not know may be whom the others wait for.
func TestUnknownGoroutinesEndTheWatch(t *testing.T) {
	errs := watched(t, 2, func(m *member) error {
		known, beside := make(chan error, 1), make(chan error, 1)
		go func() {
			ctx := context.Background()
			known <- m.copy.Barrier(ctx)
			if m.world.Rank() == 1 {
				time.Sleep(20 * time.Millisecond) // both ranks wait by now
				beside <- m.pairs.Send(ctx, vector(1), 0)
			}
		}()
		if err := <-known; err != nil {
			return err
		}
		if m.world.Rank() == 0 {
			return errors.Join(m.pairs.Recv(m.ctx, vector(1), 1), m.world.Barrier(m.ctx))
		}
		return errors.Join(m.world.Barrier(m.ctx), <-beside)
	})
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}
