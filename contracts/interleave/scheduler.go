package interleave

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/core/waits"
	"github.com/lockstep-ml/lockstep/internal/guard"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Scheduler gives the turns of one run. It is a comm.Turns. But for Run, only the
// goroutine that has the turn calls it: nothing in it is locked.
type Scheduler struct {
	schedule Schedule
	choose   func(able []*task, last *task) *task
	backends []kernels.Backend // by rank, as they were before Attach
	root     *group

	tasks   []*task // that have not ended, by rank and then by id
	started int     // tasks so far
	current *task   // who has the turn; nil before Run and after it
	able    []*task
	over    chan struct{}

	order   []uint16 // of turns, by the tasks' ids
	memory  map[kernels.Buffer]*shadow
	hazards hazards
	ranks   []account

	panicked *guard.Panic // of a task, the first
}

// account is what a rank did: turns of its goroutines, and uses of memory that
// were checked.
type account struct {
	turns, uses int64
	step        int // of the last operation of a communicator
}

// task is a goroutine of the run.
type task struct {
	id     int
	rank   int
	beside bool // a rank's queue, or what a fault started
	name   string
	turn   chan struct{}

	ready  func() bool // what it waits for; nil where it could go on
	waits  comm.Wait
	stuck  error // what ends a wait that nothing else can end
	step   int   // of the last operation of a communicator
	op     *operation
	member int // its place in op's group
	epoch  uint32
	known  clock
}

// Stuck is the error of a wait in a run of which no goroutine can go on.
type Stuck struct {
	// Why is nil where only goroutines that nobody asks for anything are left.
	Why *waits.Deadlock
}

// Error says who waits for whom.
func (e *Stuck) Error() string {
	s := "no goroutine can go on"
	if e.Why != nil {
		s += ": " + e.Why.String()
	}
	return s
}

// add makes a task, which waits for its first turn.
func (s *Scheduler) add(rank int, name string, beside bool) *task {
	t := &task{id: s.started, rank: rank, name: name, beside: beside, turn: make(chan struct{}, 1), step: -1}
	s.started++
	i, _ := slices.BinarySearchFunc(s.tasks, t, func(a, b *task) int { return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.id, b.id)) })
	s.tasks = slices.Insert(s.tasks, i, t)
	return t
}

// Run implements comm.Turns.
func (s *Scheduler) Run(n int, f func(rank int)) {
	s.over = make(chan struct{})
	for r := range n {
		s.ranks = append(s.ranks, account{step: -1})
		s.spawn(s.add(r, fmt.Sprintf("rank %d", r), false), func() { f(r) })
	}
	s.give(s.next(nil))
	<-s.over
	s.current = nil
	if s.panicked != nil {
		panic(s.panicked)
	}
}

// Go implements comm.Turns.
func (s *Scheduler) Go(name string, f func()) {
	by := s.current
	t := s.add(by.rank, fmt.Sprintf("rank %d's %s", by.rank, name), true)
	t.step = by.step
	t.acquire(by.release())
	s.spawn(t, f)
}

// spawn starts a task's goroutine, which waits for its first turn.
func (s *Scheduler) spawn(t *task, f func()) {
	go func() {
		<-t.turn
		defer s.end(t)
		defer func() {
			if p := recover(); p != nil && s.panicked == nil {
				s.panicked = guard.Of(p) // Run's: whoever asked for the run
			}
		}()
		f()
	}()
}

// end takes a task out of the run and gives the turn to another.
func (s *Scheduler) end(t *task) {
	s.tasks = slices.DeleteFunc(s.tasks, func(o *task) bool { return o == t })
	if len(s.tasks) == 0 {
		close(s.over)
		return
	}
	s.give(s.next(t))
}

// yield lets others go on. Outside of a run it does nothing.
func (s *Scheduler) yield() {
	if t := s.current; t != nil {
		s.pass(t)
	}
}

// Await implements comm.Turns.
func (s *Scheduler) Await(what comm.Wait, ready func() bool) error {
	t := s.current
	t.ready, t.waits = ready, what
	s.pass(t)
	err := t.stuck
	t.ready, t.stuck = nil, nil
	return err
}

// Release implements comm.Turns.
func (s *Scheduler) Release() comm.Moment { return s.current.release() }

// Acquire implements comm.Turns.
func (s *Scheduler) Acquire(m comm.Moment) {
	if c, ok := m.(clock); ok {
		s.current.acquire(c)
	}
}

// pass gives the turn of t, the current task, to the next and waits for it to
// come back.
func (s *Scheduler) pass(t *task) {
	next := s.next(t)
	if next == t {
		s.note(t)
		return
	}
	s.give(next)
	<-t.turn
}

// give gives the turn to a task.
func (s *Scheduler) give(t *task) {
	s.note(t)
	s.current = t
	t.turn <- struct{}{}
}

// note records a turn.
func (s *Scheduler) note(t *task) {
	s.order = append(s.order, uint16(t.id))
	s.ranks[t.rank].turns++
}

// next is who goes on: one of those that can or, where none can, one whose wait
// ends with an error.
func (s *Scheduler) next(last *task) *task {
	s.able = s.able[:0]
	for _, t := range s.tasks {
		if t.ready == nil || t.ready() {
			s.able = append(s.able, t)
		}
	}
	if len(s.able) > 0 {
		return s.choose(s.able, last)
	}
	t := s.victim()
	d := waits.Find(s.waiting())
	err := &Stuck{d}
	t.stuck = err
	if t.waits != comm.ForWork {
		h := Hazard{What: trace.Deadlock, Rank: t.rank, Step: t.step, Text: err.Error()}
		if d != nil && len(d.Absent()) == 1 {
			h.Rank, h.Step = d.Absent()[0], d.Missed[0].Meeting.Step
		}
		s.hazards.add(h, trace.Deadlock)
	}
	return t
}

// victim is the task whose wait is given up: of an operation, which makes the
// world fail for all; else of whatever a rank waits for; a queue's goroutine that
// nobody will ever ask for anything comes last.
func (s *Scheduler) victim() *task {
	return slices.MinFunc(s.tasks, func(a, b *task) int { return cmp.Compare(urgency(a.waits), urgency(b.waits)) })
}

func urgency(w comm.Wait) int {
	switch w {
	case comm.ForPeers:
		return 0
	case comm.ForWork:
		return 2
	}
	return 1
}

// waiting is what the ranks wait for, as far as goroutines wait for something in
// particular.
func (s *Scheduler) waiting() []waits.Rank {
	ranks := make([]waits.Rank, len(s.ranks))
	for i := range ranks {
		ranks[i] = waits.Rank{ID: i, Ended: true}
	}
	for _, t := range s.tasks {
		r := &ranks[t.rank]
		switch {
		case t.waits == comm.ForWork:
			continue
		case t.op != nil:
			m, missing := t.op.meeting(t.step)
			r.Waits = append(r.Waits, waits.Wait{Meeting: m, For: missing, Queue: t.beside})
		default:
			r.Waits = append(r.Waits, waits.Wait{})
		}
		r.Ended = false
	}
	return ranks
}
