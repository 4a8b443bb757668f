package comm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/lockstep-ml/lockstep/internal/guard"
)

// ErrQueueClosed is what Submit leads to after Close.
var ErrQueueClosed = errors.New("queue is closed")

// Queue runs functions one after another on a goroutine of its own, in the
// order they were submitted: the operations of one communicator (a duplicate
// made by Split) beside the caller's computation. After the first error the
// functions that follow are dropped, since a failed group stays failed.
type Queue struct {
	// Submitted, where set before the first SubmitFor, is told what was handed
	// over, when it was: the evidence that work was issued beside a computation.
	Submitted func(Label)

	ctx   context.Context
	turns Turns         // nil: Go decides
	done  chan struct{} // closed when the goroutine has ended

	mu     sync.Mutex
	change sync.Cond // tasks, busy, closed or err changed
	tasks  []task
	taken  int // tasks[:taken] have been taken
	busy   bool
	closed bool
	ended  bool // the goroutine takes no more
	err    error

	given, run Ticket   // how many were submitted, and ran
	moments    []Moment // at the end of each that ran, where turns knows

	labels Labels // of what the queue's goroutine runs

	// Where somebody watches: the queue's goroutine, the rank's that waits for it, and
	// those that wait.
	self, rank *actor
	waiting    []waiter
}

// waiter is a goroutine that waits until ready reports true.
type waiter struct {
	who   *actor
	ready func(*Queue, Ticket) bool
	t     Ticket
}

// task is a submitted function and what it is recorded under, if anything.
type task struct {
	f        func(context.Context) error
	label    Label
	labelled bool
	from     Moment // of Submit
}

// Ticket is the number of a submitted function, from 1.
type Ticket uint64

// errNoReturn is of a function that ended its goroutine.
var errNoReturn = errors.New("queued function did not return")

// NewQueue starts a queue whose functions get ctx: once it ends, their
// operations fail, on all ranks. Close ends the queue's goroutine.
func NewQueue(ctx context.Context) *Queue { return NewQueueIn(ctx, nil) }

// NewQueueIn is NewQueue where turns decide when the queue's goroutine goes on.
func NewQueueIn(ctx context.Context, turns Turns) *Queue {
	q := &Queue{ctx: ctx, turns: turns, done: make(chan struct{})}
	q.change.L = &q.mu
	if turns == nil {
		if q.self, q.rank = start(ctx, q), actorOf(ctx); q.self != nil {
			q.ctx = context.WithValue(ctx, actorKey{}, q.self)
		}
	}
	if turns == nil {
		go q.work()
	} else {
		turns.Go("queue", q.work)
	}
	return q
}

// Submit adds f and returns at once. What f reads and writes must stay
// untouched until Wait, or WaitFor of the ticket, returns.
func (q *Queue) Submit(f func(context.Context) error) Ticket { return q.submit(task{f: f}) }

func (q *Queue) submit(t task) Ticket {
	if q.turns != nil {
		t.from = q.turns.Release()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		q.fail(ErrQueueClosed)
	}
	q.given++
	if q.err != nil {
		return q.given
	}
	if q.taken > 0 && len(q.tasks) == cap(q.tasks) { // make room at the end
		q.tasks = slices.Delete(q.tasks, 0, q.taken)
		q.taken = 0
	}
	q.tasks = append(q.tasks, t)
	q.changed()
	return q.given
}

// SubmitFor is Submit of work described by l, which f's operations are recorded
// under.
func (q *Queue) SubmitFor(l Label, f func(context.Context) error) Ticket {
	if q.Submitted != nil {
		q.Submitted(l)
	}
	return q.submit(task{f: f, label: l, labelled: true})
}

// Wait blocks until all submitted functions have run, or been dropped, and
// returns the first error.
func (q *Queue) Wait() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.block(ForQueue, (*Queue).idle, 0); err != nil {
		return err
	}
	q.acquire(q.run)
	return q.err
}

// WaitFor is Wait for one function and those before it.
func (q *Queue) WaitFor(t Ticket) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.block(ForQueue, (*Queue).past, t); err != nil {
		return err
	}
	q.acquire(min(t, q.run))
	return q.err
}

// idle reports whether nothing runs or waits to. The caller holds mu, as for all
// that block waits for.
func (q *Queue) idle(Ticket) bool { return !q.busy && len(q.tasks) == q.taken }

// past reports whether a function has run, or never will.
func (q *Queue) past(t Ticket) bool { return q.run >= t || q.err != nil && q.idle(t) }

// called reports whether there is something to do for the queue's goroutine.
func (q *Queue) called(Ticket) bool { return q.taken < len(q.tasks) || q.closed }

// over reports whether the queue's goroutine takes no more.
func (q *Queue) over(Ticket) bool { return q.ended }

// block waits until ready. The caller holds mu, which is free meanwhile. An error
// means that no goroutine of the run can go on.
func (q *Queue) block(what Wait, ready func(*Queue, Ticket) bool, t Ticket) error {
	if q.turns != nil {
		return q.await(what, ready, t)
	}
	for !ready(q, t) {
		q.pause(what, ready, t)
		q.change.Wait()
	}
	return nil
}

// pause tells who watches that the caller waits, unless it has been told so. The
// caller holds mu.
func (q *Queue) pause(what Wait, ready func(*Queue, Ticket) bool, t Ticket) {
	who := q.rank
	if what == ForWork {
		who = q.self
	}
	if who == nil || slices.ContainsFunc(q.waiting, func(w waiter) bool { return w.who == who }) {
		return
	}
	q.waiting = append(q.waiting, waiter{who, ready, t})
	if who == q.rank {
		who.pause(q)
		return
	}
	who.pause(nil)
}

// changed wakes those that wait, and tells who watches of those that go on. The
// caller holds mu.
func (q *Queue) changed() {
	kept := q.waiting[:0]
	for _, w := range q.waiting {
		if w.ready(q, w.t) {
			w.who.resume()
		} else {
			kept = append(kept, w)
		}
	}
	q.waiting = kept
	q.change.Broadcast()
}

// give ends what the queue's callers wait for with an error, unless a function
// runs: what that waits for ends too.
func (q *Queue) give(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.busy {
		q.fail(err)
		q.drop()
		q.changed()
	}
}

// await is block where turns decide.
func (q *Queue) await(what Wait, ready func(*Queue, Ticket) bool, t Ticket) error {
	q.mu.Unlock()
	defer q.mu.Lock()
	return q.turns.Await(what, func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return ready(q, t)
	})
}

// acquire puts what the first n functions did before what the caller does next.
func (q *Queue) acquire(n Ticket) {
	if q.turns != nil && n > 0 {
		q.turns.Acquire(q.moments[n-1])
	}
}

// Close is Wait, after which the queue takes no more functions and its
// goroutine has ended.
func (q *Queue) Close() error {
	q.mu.Lock()
	q.closed = true
	q.changed()
	err := q.block(ForQueue, (*Queue).over, 0)
	q.mu.Unlock()
	if err != nil {
		return err
	}
	<-q.done
	return q.Wait()
}

// fail keeps the first error. The caller holds mu.
func (q *Queue) fail(err error) {
	if q.err == nil {
		q.err = err
	}
}

// work takes functions until the queue is closed and empty.
func (q *Queue) work() {
	defer close(q.done)
	if q.self != nil {
		defer q.self.end()
	}
	defer q.end()
	for {
		t, ok := q.next()
		if !ok {
			return
		}
		q.call(t)
	}
}

// end says that the queue's goroutine takes no more.
func (q *Queue) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	q.changed()
}

// drop forgets the functions that have not run. The caller holds mu.
func (q *Queue) drop() {
	clear(q.tasks)
	q.tasks, q.taken = q.tasks[:0], 0
}

// next waits for a function to run; ok is false when none will come.
func (q *Queue) next() (t task, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		if q.err != nil {
			q.drop()
			q.changed()
		}
		if q.taken < len(q.tasks) {
			t = q.tasks[q.taken]
			if q.taken++; q.taken == len(q.tasks) {
				q.drop()
			}
			q.busy = true
			return t, true
		}
		if q.closed || q.block(ForWork, (*Queue).called, 0) != nil {
			return t, false
		}
	}
}

// call runs a function and keeps its error; a panic is one, and so is a function
// that ends its goroutine.
func (q *Queue) call(t task) {
	err := errNoReturn
	defer func() {
		if p := recover(); p != nil { // a shape that a hook made impossible
			err = guard.Of(p)
			if t.labelled {
				err = fmt.Errorf("%s, step %d, beside the computation: %w", t.label.Tensor, t.label.Step, err)
			}
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		if err != nil {
			q.fail(err)
			q.drop()
		}
		q.busy = false
		q.run++
		if q.turns != nil {
			q.moments = append(q.moments, q.turns.Release())
		}
		q.changed()
	}()
	ctx := q.ctx
	if q.turns != nil {
		q.turns.Acquire(t.from)
	}
	if t.labelled {
		ctx = q.labels.On(ctx, t.label)
	}
	err = t.f(ctx)
}
