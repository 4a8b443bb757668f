package comm

import (
	"context"
	"errors"
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
	tasks  []func(context.Context) error
	busy   bool
	closed bool
	err    error
}

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
func (q *Queue) Submit(f func(context.Context) error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		q.fail(ErrQueueClosed)
	}
	if q.err != nil {
		return
	}
	q.tasks = append(q.tasks, f)
	q.change.Broadcast()
}

// SubmitFor is Submit of work described by l, which f's operations are recorded
// under.
func (q *Queue) SubmitFor(l Label, f func(context.Context) error) {
	if q.Submitted != nil {
		q.Submitted(l)
	}
	q.Submit(func(ctx context.Context) error { return f(WithLabel(ctx, l)) })
}

// Wait blocks until all submitted functions have run, or been dropped, and
// returns the first error.
func (q *Queue) Wait() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.busy || len(q.tasks) > 0 {
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
		f := q.next()
		if f == nil {
			return
		}
		q.call(f)
	}
}

// next waits for a function to run; nil means that none will come.
func (q *Queue) next() func(context.Context) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		if q.err != nil {
			q.tasks = nil
			q.change.Broadcast()
		}
		if len(q.tasks) > 0 {
			f := q.tasks[0]
			q.tasks[0] = nil
			q.tasks = q.tasks[1:]
			q.busy = true
			return f
		}
		if q.closed {
			return nil
		}
		q.change.Wait()
	}
}

// call runs f and keeps its error; f that ends its goroutine is one too.
func (q *Queue) call(f func(context.Context) error) {
	err := errors.New("queued function did not return")
	defer func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if err != nil {
			q.fail(err)
			q.tasks = nil
		}
		q.busy = false
		q.change.Broadcast()
	}()
	err = f(q.ctx)
}
