package commtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/drill"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
)

// failure is what every rank's error must show.
type failure struct {
	cause error    // errors.Is; nil for any
	peer  int      // Error.Peer; anyPeer for any
	says  []string // parts of the text
}

// anyPeer accepts every Error.Peer.
const anyPeer = -2

// mustFail runs f on every rank: each must return an *Error as described, and
// whatever it does next must fail too.
func (s Suite) mustFail(r Reporter, name string, size int, want failure, f func(context.Context, rank) error) {
	r.Helper()
	next := make([]error, size)
	errs := s.world(r, size, func(ctx context.Context, k rank) error {
		err := f(ctx, k)
		if err != nil {
			next[k.Rank()] = k.Barrier(ctx)
		}
		return err
	})
	for i, err := range errs {
		if problem := want.check(i, err); problem != nil {
			r.Errorf("%s: rank %d: %v", name, i, problem)
		} else if next[i] == nil {
			r.Errorf("%s: rank %d: the operation after a failed one succeeded", name, i)
		}
	}
}

// check compares a rank's error with what it must show.
func (w failure) check(rank int, err error) error {
	var e *comm.Error
	switch {
	case err == nil:
		return errors.New("the operation succeeded, want an error")
	case errors.Is(err, errSilent):
		return err
	case !errors.As(err, &e):
		return fmt.Errorf("error %q is not a *comm.Error", err)
	case e.Rank != rank:
		return fmt.Errorf("error %q says rank %d", err, e.Rank)
	case w.peer != anyPeer && e.Peer != w.peer:
		return fmt.Errorf("error %q blames rank %d, want %d", err, e.Peer, w.peer)
	case w.cause != nil && !errors.Is(err, w.cause):
		return fmt.Errorf("error %q does not wrap %q", err, w.cause)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("error %q: found only when patience ended", err)
	}
	for _, part := range w.says {
		if !strings.Contains(err.Error(), part) {
			return fmt.Errorf("error %q does not say %q", err, part)
		}
	}
	return nil
}

// checkArguments gives one rank arguments that break a rule: all ranks fail and
// blame it.
func checkArguments(r Reporter, s Suite) {
	const bad = 1
	cases := []struct {
		name  string
		wrong func(context.Context, rank) error
	}{
		{"root out of range", func(ctx context.Context, k rank) error { return k.Broadcast(ctx, k.vector(1), k.Size()) }},
		{"root negative", func(ctx context.Context, k rank) error { return k.Broadcast(ctx, k.vector(1), -1) }},
		{"send to itself", func(ctx context.Context, k rank) error { return k.Send(ctx, k.vector(1), bad) }},
		{"receive from nobody", func(ctx context.Context, k rank) error { return k.Recv(ctx, k.vector(1), k.Size()) }},
		{"unknown reduction", func(ctx context.Context, k rank) error { return k.AllReduce(ctx, k.vector(1), kernels.Op(9)) }},
		{"destination too long", func(ctx context.Context, k rank) error {
			return k.ReduceScatter(ctx, k.vector(1, 2), k.vector(1, 2, 3), nil, kernels.Sum)
		}},
		{"bounds that descend", func(ctx context.Context, k rank) error {
			return k.AllGather(ctx, k.vector(1, 2, 3), k.vector(1), []int{0, 2, 1, 3})
		}},
		{"strided tensor", func(ctx context.Context, k rank) error {
			return k.AllReduce(ctx, k.vector(1, 2, 3, 4).As(2, 2).ColRange(0, 1), kernels.Sum)
		}},
		{"part out of place", func(ctx context.Context, k rank) error {
			x := k.vector(1, 2, 3)
			return k.AllGather(ctx, x, x.Range(0, 1), nil)
		}},
	}
	for _, c := range cases {
		s.mustFail(r, c.name, 3, failure{cause: comm.ErrArgument, peer: bad}, func(ctx context.Context, k rank) error {
			if k.Rank() == bad {
				return c.wrong(ctx, k)
			}
			return k.Barrier(ctx)
		})
	}
}

// checkMismatch lets rank 2 of three do something else than the others.
func checkMismatch(r Reporter, s Suite) {
	type op = func(context.Context, rank) error
	reduce := func(n int, o kernels.Op) op {
		return func(ctx context.Context, k rank) error { return k.AllReduce(ctx, k.vector(make([]float32, n)...), o) }
	}
	broadcast := func(root int) op {
		return func(ctx context.Context, k rank) error { return k.Broadcast(ctx, k.vector(1, 2), root) }
	}
	gather := func(bounds ...int) op {
		return func(ctx context.Context, k rank) error {
			n := bounds[k.Rank()+1] - bounds[k.Rank()]
			return k.AllGather(ctx, k.vector(1, 2, 3, 4), k.vector(make([]float32, n)...), bounds)
		}
	}
	barrier := func(ctx context.Context, k rank) error { return k.Barrier(ctx) }
	integers := func(ctx context.Context, k rank) error { return k.AllReduceInt(ctx, make([]uint64, 2), kernels.Sum) }
	cases := []struct {
		name       string
		most, last op
		says       []string
	}{
		{"operation", barrier, reduce(2, kernels.Sum), []string{names.OpBarrier, names.OpAllReduce}},
		{"element type", integers, reduce(2, kernels.Sum), []string{names.OpAllReduceInt, names.OpAllReduce}},
		{"size", reduce(2, kernels.Sum), reduce(3, kernels.Sum), []string{" 2 ", " 3 "}},
		{"empty or not", reduce(0, kernels.Sum), reduce(1, kernels.Sum), []string{" 0 ", " 1 "}},
		{"reduction", reduce(2, kernels.Sum), reduce(2, kernels.Max), []string{"sum", "max"}},
		{"root", broadcast(0), broadcast(1), []string{"rank 0", "rank 1"}},
		{"bounds", gather(0, 1, 2, 4), gather(0, 1, 3, 4), nil},
	}
	for _, c := range cases {
		want := failure{cause: comm.ErrMismatch, peer: 2, says: append([]string{"rank 2"}, c.says...)}
		s.mustFail(r, "mismatch of "+c.name, 3, want, func(ctx context.Context, k rank) error {
			if k.Rank() == 2 {
				return c.last(ctx, k)
			}
			return c.most(ctx, k)
		})
	}
	lengths := failure{cause: comm.ErrMismatch, peer: anyPeer, says: []string{" 2 ", " 3 "}}
	s.mustFail(r, "mismatch of a message's length", 2, lengths, func(ctx context.Context, k rank) error {
		if k.Rank() == 0 {
			return k.Send(ctx, k.vector(1, 2), 1)
		}
		if err := k.Recv(ctx, k.vector(1, 2, 3), 0); err != nil {
			return err
		}
		return errors.New("a message of 2 elements filled 3")
	})
}

// checkMisfits goes through all that ranks can disagree on in collectives, and in the
// length of messages, the odd rank another one each time: every rank is refused.
// Messages that never meet are
// known by a deadline alone to a communicator that does not compare what ranks
// wait for.
func checkMisfits(r Reporter, s Suite) {
	for _, size := range []int{2, 3, 5} {
		for _, m := range drill.Misfits(size) {
			if !strings.HasPrefix(m.Name, "length") &&
				slices.ContainsFunc(m.Calls, func(c drill.Record) bool { return c.Op == names.OpSend || c.Op == names.OpRecv }) {
				continue
			}
			s.mustFail(r, fmt.Sprintf("mismatch of %s in a world of %d", m.Name, size), size,
				failure{cause: comm.ErrMismatch, peer: anyPeer}, func(ctx context.Context, k rank) error {
					return comm.DrillMisfit(ctx, []comm.Communicator{open{k.Communicator}}, s.Backend, m)[0]
				})
		}
	}
}

// open is a communicator that whoever uses it does not close.
type open struct{ comm.Communicator }

func (open) Close() error { return nil }

// checkClosedPeer lets one rank leave before and while the others need it.
func checkClosedPeer(r Reporter, s Suite) {
	const gone = 1
	for _, c := range waits(gone) {
		for _, after := range []time.Duration{0, 5 * time.Millisecond} {
			errs := s.world(r, 3, func(ctx context.Context, k rank) error {
				if k.Rank() == gone {
					time.Sleep(after)
					return k.Close()
				}
				return c.wait(ctx, k)
			})
			for i, err := range errs {
				want := failure{cause: comm.ErrLeft, peer: gone}
				if i != gone {
					err = want.check(i, err)
				}
				if err != nil {
					r.Errorf("%s, rank %d closes after %v: rank %d: %v", c.name, gone, after, i, err)
				}
			}
		}
	}
}

// waiting is an operation that cannot end without another rank.
type waiting struct {
	name string
	wait func(context.Context, rank) error
}

// waits lists operations of ranks 0 and 2 that need rank peer.
func waits(peer int) []waiting {
	return []waiting{
		{names.OpBarrier, func(ctx context.Context, k rank) error { return k.Barrier(ctx) }},
		{names.OpAllReduce, func(ctx context.Context, k rank) error { return k.AllReduce(ctx, k.vector(1, 2), kernels.Sum) }},
		{names.OpAllGatherBytes, func(ctx context.Context, k rank) error {
			_, err := k.AllGatherBytes(ctx, []byte{1})
			return err
		}},
		{names.OpSplit, func(ctx context.Context, k rank) error {
			_, err := k.Split(ctx, 0, 0)
			return err
		}},
		{names.OpRecv, func(ctx context.Context, k rank) error {
			if k.Rank() == peer {
				return k.Barrier(ctx)
			}
			return k.Recv(ctx, k.vector(0), peer)
		}},
	}
}

// checkCancelledPeer stops one rank, before and while it waits for another one,
// which then comes too late.
func checkCancelledPeer(r Reporter, s Suite) {
	const stopped, late = 0, 1
	for _, c := range waits(late) {
		for _, after := range []time.Duration{0, 5 * time.Millisecond} {
			over := make(chan struct{})
			name := fmt.Sprintf("%s cancelled after %v", c.name, after)
			s.mustFail(r, name, 3, failure{peer: stopped}, func(ctx context.Context, k rank) error {
				switch k.Rank() {
				case stopped:
					defer close(over)
					err := stopAfter(ctx, after, func(ctx context.Context) error { return c.wait(ctx, k) })
					if !errors.Is(err, context.Canceled) {
						return fmt.Errorf("error %v does not wrap that of its context", err)
					}
					return err
				case late:
					<-over
				}
				return c.wait(ctx, k)
			})
		}
	}
}

// stopAfter runs f with a context that is cancelled after d.
func stopAfter(ctx context.Context, d time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if d == 0 {
		cancel()
	}
	timer := time.AfterFunc(d, cancel)
	defer timer.Stop()
	return f(ctx)
}

// checkFailureSpreads stops a rank in one group; ranks that wait in a group it
// is not in fail as well.
func checkFailureSpreads(r Reporter, s Suite) {
	want := failure{peer: 0}
	s.mustFail(r, "failure in another group", 4, want, func(ctx context.Context, k rank) error {
		g, err := k.Split(ctx, k.Rank()/2, 0)
		if err != nil {
			return err
		}
		if k.Rank() == 0 {
			return stopAfter(ctx, time.Millisecond, func(ctx context.Context) error { return g.Recv(ctx, k.vector(0), 1) })
		}
		if k.Rank() == 3 {
			return g.Recv(ctx, k.vector(0), 0)
		}
		if k.Rank() == 2 {
			return k.Recv(ctx, k.vector(0), 3)
		}
		return k.Barrier(ctx)
	})
}

// checkQuietClose closes groups at rest, one rank after the other: no error
// anywhere, and other groups go on.
func checkQuietClose(r Reporter, s Suite) {
	s.mustHold(r, 4, func(ctx context.Context, k rank) error {
		g, err := k.Split(ctx, k.Rank()%2, 0)
		if err != nil {
			return err
		}
		for range 3 {
			if err := g.Barrier(ctx); err != nil {
				return err
			}
		}
		if err := errors.Join(g.Close(), g.Close()); err != nil {
			return fmt.Errorf("closing a group at rest: %w", err)
		}
		for range 3 {
			if err := k.Barrier(ctx); err != nil {
				return fmt.Errorf("after a group was closed: %w", err)
			}
		}
		return k.Close()
	})
}
