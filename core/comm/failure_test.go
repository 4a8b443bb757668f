package comm_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/comm/commtest"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
)

func TestDeadlineNamesTheMissing(t *testing.T) {
	for _, algo := range []names.Algorithm{names.Tree, names.Ring} {
		comms := world(t, 4, comm.Options{Algorithm: algo, Deadline: 30 * time.Millisecond})
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
	comms := world(t, 3, comm.Options{Deadline: 30 * time.Millisecond})
	err := comms[2].Send(t.Context(), vector(1), 1)
	var e *comm.Error
	if !errors.As(err, &e) || !errors.Is(e, comm.ErrDeadline) || e.Peer != 1 || e.Op != names.OpSend || e.Rank != 2 {
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
			if c.Rank() == 0 {
				return c.Send(t.Context(), vector(1), 1)
			}
			return c.Barrier(t.Context())
		},
	} {
		for r, err := range each(world(t, 3, comm.Options{Deadline: time.Minute}), f) {
			if !errors.Is(err, comm.ErrMismatch) || !strings.Contains(err.Error(), "rank 0 called") || !strings.Contains(err.Error(), "rank 1 called") {
				t.Errorf("%s: rank %d: %v", name, r, err)
			}
		}
	}
}

func TestTwoOperationsAtOnceAreRefused(t *testing.T) {
	comms := world(t, 2, comm.Options{})
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
	comms := world(t, 3, comm.Options{Deadline: time.Minute})
	errs := each(comms, func(c comm.Communicator) (err error) {
		g, err := c.Split(t.Context(), 0, 0)
		if err != nil {
			return err
		}
		defer func() { _ = recover() }()
		defer c.Close()
		if c.Rank() == 1 {
			time.Sleep(5 * time.Millisecond) // the others wait in the new group by now
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

// brittle is a backend whose kernels panic, or whose memory reports a fault
// from the start or after the first kernel.
type brittle struct {
	commtest.Memory
	panics bool
	fault  error // shown by Sync
	late   error // becomes fault
}

func (b *brittle) work() {
	if b.panics {
		panic("kernels: bug")
	}
	if b.late != nil {
		b.fault = b.late
	}
}

func (b *brittle) Reduce(dst, src []kernels.Tensor, op kernels.Op) {
	b.work()
	b.Memory.Reduce(dst, src, op)
}

func (b *brittle) Copy(dst, src kernels.Tensor) {
	b.work()
	b.Memory.Copy(dst, src)
}

func (b *brittle) Sync() error { return b.fault }

// A fault or a panic in one rank's kernels ends every rank, whatever the
// algorithm, and in messages too; the rank and the cause are named.
func TestFaultOfABackendEndsAll(t *testing.T) {
	fault := errors.New("device lost")
	reduce := func(c comm.Communicator) error {
		return c.AllReduce(t.Context(), vector(1, 2, 3, 4), kernels.Sum)
	}
	message := func(c comm.Communicator) error {
		if c.Rank() == 2 {
			return c.Barrier(t.Context())
		}
		if c.Rank() == 0 {
			return c.Recv(t.Context(), vector(1), 1)
		}
		return c.Send(t.Context(), vector(1), 0)
	}
	for _, c := range []struct {
		algo names.Algorithm
		bad  int
		f    func(comm.Communicator) error
	}{
		{names.Tree, 1, reduce}, {names.Ring, 1, reduce}, {names.Star, 0, reduce}, {names.Tree, 0, message},
	} {
		for name, be := range map[string]*brittle{
			"panic": {panics: true}, "fault before": {fault: fault}, "fault after": {late: fault},
		} {
			comms, err := comm.NewLocal(3, func(r int) kernels.Backend {
				if r == c.bad {
					return be
				}
				return commtest.Memory{}
			}, comm.Options{Algorithm: c.algo, Deadline: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			want := fault
			if be.panics {
				want = comm.ErrPanicked
			}
			errs := each(comms, func(e comm.Communicator) (err error) {
				defer func() {
					if recover() != nil {
						err = e.Barrier(t.Context())
					}
				}()
				return c.f(e)
			})
			for r, err := range errs {
				var e *comm.Error
				if !errors.As(err, &e) || !errors.Is(e, want) || e.Peer != c.bad {
					t.Errorf("%s, %s on rank %d: rank %d: %v", c.algo, name, c.bad, r, err)
				}
			}
		}
	}
}

// Neither a context that ends nor a failure in another group lets an operation
// return while a peer works on this rank's buffers: its result is complete.
func TestNoReturnWhilePeersWork(t *testing.T) {
	for name, disturb := range map[string]func(cancel func(), other comm.Communicator){
		"context": func(cancel func(), _ comm.Communicator) { cancel() },
		"failure": func(_ func(), other comm.Communicator) {
			if err := other.Broadcast(t.Context(), vector(1), 9); !errors.Is(err, comm.ErrArgument) {
				t.Errorf("broadcast from rank 9: %v", err)
			}
		},
	} {
		slow := &slowReduce{started: make(chan struct{}), release: make(chan struct{})}
		bes := []kernels.Backend{commtest.Memory{}, slow}
		comms, err := comm.NewLocal(2, func(r int) kernels.Backend { return bes[r] }, comm.Options{Deadline: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		must(t, comms, func(c comm.Communicator) error {
			other, err := c.Split(t.Context(), 0, 0)
			if err != nil {
				return err
			}
			if c.Rank() == 0 {
				go func() {
					<-slow.started
					disturb(cancel, other)
					time.Sleep(5 * time.Millisecond)
					close(slow.release)
				}()
			}
			x := vector(1, 2)
			if err := c.AllReduce(ctx, x, kernels.Sum); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if diff := cmp.Diff([]float32{2, 4}, read(x)); diff != "" {
				return fmt.Errorf("%s: %s", name, diff)
			}
			return nil
		})
		cancel()
	}
}

// slowReduce waits in Reduce until it is released.
type slowReduce struct {
	commtest.Memory
	started, release chan struct{}
}

func (s *slowReduce) Reduce(dst, src []kernels.Tensor, op kernels.Op) {
	close(s.started)
	<-s.release
	s.Memory.Reduce(dst, src, op)
}

func TestMismatchNamesEveryCall(t *testing.T) {
	errs := each(world(t, 4, comm.Options{}), func(c comm.Communicator) error {
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

// Of two calls that differ neither is the odd one.
func TestMismatchOfTwoBlamesNobody(t *testing.T) {
	errs := each(world(t, 2, comm.Options{}), func(c comm.Communicator) error {
		return c.AllReduce(t.Context(), vector(make([]float32, 1+c.Rank())...), kernels.Sum)
	})
	for r, err := range errs {
		var e *comm.Error
		if !errors.As(err, &e) || !errors.Is(e, comm.ErrMismatch) || e.Peer != -1 {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}
