package comm

import (
	"context"
	"errors"
	"slices"
	"sync"
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

	ctx  context.Context
	done chan struct{} // closed when the goroutine has ended

	mu     sync.Mutex
	change sync.Cond // tasks, busy, closed or err changed
	tasks  []task
	taken  int // tasks[:taken] have been taken
	busy   bool
	closed bool
	err    error

	labels Labels // of what the queue's goroutine runs
}

// task is a submitted function and what it is recorded under, if anything.
type task struct {
	f        func(context.Context) error
	label    Label
	labelled bool
}

// errNoReturn is of a function that ended its goroutine.
var errNoReturn = errors.New("queued function did not return")

// NewQueue starts a queue whose functions get ctx: once it ends, their
// operations fail, on all ranks. Close ends the queue's goroutine.
func NewQueue(ctx context.Context) *Queue {
	q := &Queue{ctx: ctx, done: make(chan struct{})}
	q.change.L = &q.mu
	go q.run()
	return q
}

// Submit adds f and returns at once. What f reads and writes must stay
// untouched until Wait returns.
func (q *Queue) Submit(f func(context.Context) error) { q.submit(task{f: f}) }

func (q *Queue) submit(t task) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		q.fail(ErrQueueClosed)
	}
	if q.err != nil {
		return
	}
	if q.taken > 0 && len(q.tasks) == cap(q.tasks) { // make room at the end
		q.tasks = slices.Delete(q.tasks, 0, q.taken)
		q.taken = 0
	}
	q.tasks = append(q.tasks, t)
	q.change.Broadcast()
}

// SubmitFor is Submit of work described by l, which f's operations are recorded
// under.
func (q *Queue) SubmitFor(l Label, f func(context.Context) error) {
	if q.Submitted != nil {
		q.Submitted(l)
	}
	q.submit(task{f, l, true})
}

// Wait blocks until all submitted functions have run, or been dropped, and
// returns the first error.
func (q *Queue) Wait() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.busy || len(q.tasks) > q.taken {
		q.change.Wait()
	}
	return q.err
}

// Close is Wait, after which the queue takes no more functions and its
// goroutine has ended.
func (q *Queue) Close() error {
	q.mu.Lock()
	q.closed = true
	q.change.Broadcast()
	q.mu.Unlock()
	<-q.done
	return q.Wait()
}

// fail keeps the first error. The caller holds mu.
func (q *Queue) fail(err error) {
	if q.err == nil {
		q.err = err
	}
}

// run takes functions until the queue is closed and empty.
func (q *Queue) run() {
	defer close(q.done)
	for {
		t, ok := q.next()
		if !ok {
			return
		}
		q.call(t)
	}
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
			q.change.Broadcast()
		}
		if q.taken < len(q.tasks) {
			t = q.tasks[q.taken]
			if q.taken++; q.taken == len(q.tasks) {
				q.drop()
			}
			q.busy = true
			return t, true
		}
		if q.closed {
			return t, false
		}
		q.change.Wait()
	}
}

// call runs a function and keeps its error; one that ends its goroutine is one
// too.
func (q *Queue) call(t task) {
	err := errNoReturn
	defer func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if err != nil {
			q.fail(err)
			q.drop()
		}
		q.busy = false
		q.change.Broadcast()
	}()
	ctx := q.ctx
	if t.labelled {
		ctx = q.labels.On(ctx, t.label)
	}
	err = t.f(ctx)
}
