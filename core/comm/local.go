package comm

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm/internal/protocol"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/kernels"
)

// DefaultDeadline is how long an operation waits for a peer unless told
// otherwise.
const DefaultDeadline = 60 * time.Second

// Options configure a world. Groups split from it inherit them.
type Options struct {
	// Algorithm of the float collectives; "" is Tree.
	Algorithm names.Algorithm
	// Deadline bounds how long an operation waits for a peer; 0 is
	// DefaultDeadline.
	Deadline time.Duration
	// Turns, where not nil, decides which rank goes on when; none waits longer than
	// others need then, whatever the deadline.
	Turns Turns
	// Watch, where not nil, finds ranks that wait for each other, whatever the
	// deadline. It is of one world.
	Watch *Watch
}

// Check fills defaults and refuses what has no meaning.
func (o Options) Check() (Options, error) {
	switch o.Algorithm {
	case "":
		o.Algorithm = names.Tree
	case names.Tree, names.Ring, names.Star, names.MPI:
	default:
		return o, fmt.Errorf("comm: algorithm %q: want %s, %s, %s or %s", o.Algorithm, names.Tree, names.Ring, names.Star, names.MPI)
	}
	if o.Deadline < 0 {
		return o, fmt.Errorf("comm: deadline %v: must not be negative", o.Deadline)
	}
	if o.Deadline == 0 {
		o.Deadline = DefaultDeadline
	}
	return o, nil
}

// NewLocal makes a world of size ranks in this process and returns their ends,
// by rank. Rank r runs its kernels on be(r); ranks may share a backend. Every
// backend reads and writes the buffers of all ranks, so all must be of one kind.
//
// An operation waits until every rank of the group has called it. No rank may
// touch the buffers it gave before the operation returns. When a rank's context
// ends, when it closes a group that its peers still need, or when it is missing
// at the deadline, the whole world fails: every operation in flight and every
// later one, in all groups, returns an *Error that wraps the first cause.
func NewLocal(size int, be func(rank int) kernels.Backend, opts Options) ([]Communicator, error) {
	if size < 1 {
		return nil, fmt.Errorf("comm: world of %d ranks: want at least 1", size)
	}
	opts, err := opts.Check()
	if err == nil && opts.Algorithm == names.MPI {
		err = fmt.Errorf("comm: algorithm %s: is MPI's, and these ranks are goroutines", opts.Algorithm)
	}
	if err != nil {
		return nil, err
	}
	w := &world{opts: opts, algo: algorithmOf(opts.Algorithm), failed: make(chan struct{})}
	ranks := make([]int, size)
	for r := range ranks {
		ranks[r] = r
	}
	if opts.Watch != nil {
		opts.Watch.world = w
	}
	g := newGroup(w, nil, ranks)
	ends := make([]Communicator, size)
	for r := range ends {
		b := be(r)
		if b == nil {
			return nil, fmt.Errorf("comm: rank %d has no backend", r)
		}
		ends[r] = &local{g: g, rank: r, be: b}
	}
	return ends, nil
}

// World makes the ends, by rank, of a world of size ranks, whose tensors live on
// backend(rank), wherever the ranks are. Nil is NewLocal.
type World func(ctx context.Context, size int, backend func(rank int) kernels.Backend, o Options) ([]Communicator, error)

// Open makes a world.
func (w World) Open(ctx context.Context, size int, backend func(rank int) kernels.Backend, o Options) ([]Communicator, error) {
	if w == nil {
		return NewLocal(size, backend, o)
	}
	return w(ctx, size, backend, o)
}

// world is what all groups of one NewLocal share. Its mutex guards every field
// of the world, its groups, meetings and posts.
type world struct {
	opts Options
	algo algorithm

	mu     sync.Mutex
	first  *protocol.Failure // nil while the world works
	failed chan struct{}     // closed together with first
}

// fail ends the world with f unless it has ended, and returns its failure. The
// caller holds mu.
func (w *world) fail(f protocol.Failure) *protocol.Failure {
	if w.first == nil {
		w.first = &f
		close(w.failed)
	}
	return w.first
}

// alarm is the deadline of a rank's waits, one at a time.
type alarm struct{ timer *time.Timer }

// set starts the alarm; stop ends it, after which nothing of it is left.
func (a *alarm) set(d time.Duration) <-chan time.Time {
	if a.timer == nil {
		a.timer = time.NewTimer(d)
	} else {
		a.timer.Reset(d)
	}
	return a.timer.C
}

func (a *alarm) stop() { a.timer.Stop() }

// wait blocks until ready gives its value. Otherwise it returns what ended the
// wait: the context's cause, ErrDeadline, or errWorldFailed.
func (w *world) wait(ctx context.Context, a *alarm, ready <-chan struct{}) error {
	if w.opts.Turns != nil {
		if err := w.await(ctx, ready); err != nil {
			return err
		}
	}
	select {
	case <-ready:
		return nil
	default:
	}
	late := a.set(w.opts.Deadline)
	defer a.stop()
	select {
	case <-ready:
		return nil
	case <-w.failed:
		return errWorldFailed
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-late:
		return ErrDeadline
	}
}

// await gives the turn to others until one of the things that wait waits for is
// there: who is woken has its value already, so that nothing blocks after it.
func (w *world) await(ctx context.Context, ready <-chan struct{}) error {
	return w.opts.Turns.Await(ForPeers, func() bool {
		select {
		case <-w.failed:
			return true
		default:
			return len(ready) > 0 || ctx.Err() != nil
		}
	})
}

// settle waits for ready like wait, but neither the context nor a failure
// elsewhere ends it: a peer is at work on this rank's buffers and will finish.
func (w *world) settle(a *alarm, ready <-chan struct{}) error {
	if t := w.opts.Turns; t != nil {
		if err := t.Await(ForPeers, func() bool { return len(ready) > 0 }); err != nil {
			return err
		}
	}
	select {
	case <-ready:
		return nil
	default:
	}
	late := a.set(w.opts.Deadline)
	defer a.stop()
	select {
	case <-ready:
		return nil
	case <-late:
		return ErrDeadline
	}
}

// errWorldFailed ends a wait when the world has failed: its first failure says
// why.
var errWorldFailed = errors.New("the world has failed")

// local is one rank's end of a group in this process.
type local struct {
	g    *group
	rank int // in the group
	be   kernels.Backend
	idle atomic.Pointer[call] // of the last operation, for the next one

	moved atomic.Int64 // by the last operation
}

// place is this rank's, for the checks of its arguments.
func (c *local) place() protocol.Place {
	return protocol.Place{Rank: c.rank, Ranks: c.g.ranks, Mem: c.be}
}

// Moved implements Mover.
func (c *local) Moved() int64 { return c.moved.Load() }

// part is this rank's place in its group.
func (c *local) part() shard.Part { return shard.Part{Index: c.rank, Size: len(c.g.ranks)} }

// me is this rank, in the world.
func (c *local) me() int { return c.g.ranks[c.rank] }

// Rank is this rank's index in the group.
func (c *local) Rank() int { return c.rank }

// Size is the number of ranks of the group.
func (c *local) Size() int { return len(c.g.ranks) }

// Ranks holds the world ranks of the group.
func (c *local) Ranks() []int { return append([]int(nil), c.g.ranks...) }

// error wraps the world's failure for the operation that this rank was in.
func (c *local) error(k *call, f *protocol.Failure) error {
	return &Error{Op: k.Op, Rank: c.me(), Peer: f.Peer, Seq: k.Seq, Err: f.Err}
}
