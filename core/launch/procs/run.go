//go:build unix

package procs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm/wire"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// run is a task that agents are at.
type run struct {
	Task
	id    int
	say   func(note, []int)
	seats [][]int // ranks by agent, nil where nobody knows
	takes []int   // agents that take part

	mu     sync.Mutex
	logs   map[int]*trace.Log // by rank
	losses []float64          // of the steps that are done
	ended  map[int]*ended     // by agent; nil of one that is lost
	failed []failed           // in the order in which they were heard of
	known  bool               // all who take part have been told of the task
	warned bool               // and that one's part went wrong
	told   bool               // its outcome has been given
	meets  meeting
	done   chan struct{} // closed when all have ended
}

const (
	// hearing is how long ranks may take to hear by themselves that a peer is lost: then
	// they say where they were. Those that still wait for it to come do not hear of it.
	hearing = 4 * time.Second
	// patienceAfter is how long what is left of a run may take to end when it is told to.
	patienceAfter = 10 * time.Second
)

// Run has the agents do a task. After an error the outcome holds what was recorded up
// to it: of an agent that died, up to the last step that was done. An agent that is
// lost ends the team: the error is a *Lost, and so are those of all later tasks.
func (t *Team) Run(ctx context.Context, task Task) (*launch.Outcome, error) {
	r := &run{Task: task, say: t.send, logs: map[int]*trace.Log{}, ended: map[int]*ended{}, done: make(chan struct{})}
	if task.World > 0 {
		r.seats = Deal(t.seat.Agents, task.World)
	}
	for i := range t.seat.Agents {
		if r.seats == nil || len(r.seats[i]) > 0 {
			r.takes = append(r.takes, i)
		}
	}
	if err := t.begin(r); err != nil {
		return nil, err
	}
	defer t.forget(r)
	for _, i := range slices.Backward(r.takes) { // the first, which all others hear of, hears last
		t.send(note{Kind: noteTask, Task: r.id, What: task.What, Dir: task.Dir}, []int{i})
	}
	r.begun()
	var cause error
	select {
	case <-r.done:
	case <-t.broken:
		r.wait(ctx, min(hearing, t.seat.Silence))
	case <-ctx.Done():
		cause = context.Cause(ctx)
	}
	if !r.over() {
		if cause == nil {
			cause = errors.New("the run is over")
		}
		t.send(note{Kind: noteCancel, Task: r.id, Text: cause.Error()}, r.takes)
		r.wait(context.WithoutCancel(ctx), patienceAfter)
	}
	return t.outcome(ctx, r)
}

// begin numbers a run, unless an agent is lost.
func (t *Team) begin(r *run) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lost != nil {
		return r.without(t.lost)
	}
	t.last++
	r.id = t.last
	t.runs[r.id] = r
	return nil
}

func (t *Team) forget(r *run) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.runs, r.id)
}

func (r *run) over() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

func (r *run) wait(ctx context.Context, atMost time.Duration) {
	select {
	case <-r.done:
	case <-ctx.Done():
	case <-time.After(atMost):
	}
}

// outcome is what a run came to.
func (t *Team) outcome(ctx context.Context, r *run) (*launch.Outcome, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = true
	out := &launch.Outcome{}
	for _, l := range r.logs {
		out.Logs = append(out.Logs, l)
	}
	slices.SortFunc(out.Logs, func(a, b *trace.Log) int { return a.Header.Rank - b.Header.Rank })
	out.Loss = r.losses
	err := t.failure(ctx, r)
	if len(out.Logs) > 0 {
		var merr error
		out.History, merr = trace.Merge(out.Logs)
		err = errors.Join(err, merr)
	}
	return out, err
}

// failure is why a run failed: because an agent is lost, or ctx ended, or of what its
// agents say. One that all of its agents ended well has not.
func (t *Team) failure(ctx context.Context, r *run) error {
	said := r.said(t)
	if said == nil {
		return nil
	}
	var lost *Lost
	if err := t.Over(); errors.As(err, &lost) {
		return r.without(lost)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return said
}

// without is that an agent is lost, with the ranks of the run that it had, or was to have.
func (r *run) without(lost *Lost) *Lost {
	named := *lost
	if r.seats != nil {
		named.Ranks = r.seats[lost.Agent]
	}
	return &named
}

// listen reads what an agent says until that ends, which is the error.
func (t *Team) listen(c *child) error {
	for {
		var n note
		if err := c.ch.Receive(wire.MaxNote, t.seat.Silence, &n); err != nil {
			return err
		}
		if err := t.heard(c, &n); err != nil {
			return err
		}
	}
}

// heard does what a note asks for.
func (t *Team) heard(c *child, n *note) error {
	t.mu.Lock()
	r := t.runs[n.Task]
	t.mu.Unlock()
	if n.Kind == noteLog {
		behind := c.ch.Behind(n.Bytes, t.seat.Silence)
		log, err := trace.Receive(behind, fmt.Sprintf("what %v recorded", c))
		switch {
		case behind.Err != nil: // it is no fault of what was recorded
			return behind.Err
		case err != nil || r == nil:
			return err
		}
		return r.recorded(log)
	}
	if n.Kind == noteUnfit {
		return errors.New(n.Text)
	}
	if r == nil {
		return nil // of a run that was given up
	}
	switch n.Kind {
	case noteOpen:
		t.send(*n, slices.DeleteFunc(slices.Clone(r.takes), func(i int) bool { return i == c.agent }))
	case noteProgress:
		r.progressed(n.Progress)
	case noteAsk:
		return c.ch.Send(note{Kind: noteAnswer, Task: n.Task, Step: n.Step, Stop: r.Stop != nil && r.Stop(n.Step)}, t.seat.Silence)
	case noteMeet:
		r.mu.Lock()
		defer r.mu.Unlock()
		r.meet(c.agent, n.Step, n.Text)
	case noteDone:
		if n.End == nil {
			return errors.New("ended a task without saying how")
		}
		t.linked(n.End.Links)
		r.ends(c.agent, n.End)
	}
	return nil
}

// progressed notes the loss of a step and tells of it, unless the run is over.
func (r *run) progressed(p *progress) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p == nil || r.told {
		return
	}
	r.losses = append(r.losses, float64(p.Loss))
	if r.Progress != nil {
		r.Progress(p.said())
	}
}

// recorded adds what a rank recorded.
func (r *run) recorded(log *trace.Log) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	rank := log.Header.Rank
	if has := r.logs[rank]; has != nil {
		a, b := has.Header, log.Header
		if a.Spec.String() != b.Spec.String() || a.Origin() != b.Origin() {
			return fmt.Errorf("rank %d recorded two runs", rank)
		}
		has.Add(log.Take())
		return nil
	}
	r.logs[rank] = log
	return nil
}
