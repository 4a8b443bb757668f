//go:build unix

package procs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm/wire"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/internal/guard"
)

// Work does a task with the ranks of this process: parts are changed by Job.Join. What
// it gives after an error is what was recorded up to it.
type Work func(ctx context.Context, j *Job) (*launch.Outcome, error)

// Server is a seat, or what leads to one.
type Server interface {
	Serve(ctx context.Context, identity string, work Work) (code int, err error)
}

// agent is this process, at a driver's service.
type agent struct {
	*Seat
	identity string
	at       place
	crew     crew
	ch       *wire.Channel
	work     Work
	carries  carrying

	mu   sync.Mutex
	jobs map[int]*Job
}

// Serve does what the driver asks for until that says how to end: the exit code.
func (s *Seat) Serve(ctx context.Context, identity string, work Work) (code int, err error) {
	a := &agent{Seat: s, identity: identity, work: work, jobs: map[int]*Job{}}
	if err := a.join(ctx); err != nil {
		return 0, fmt.Errorf("agent %d joins its driver: %w", s.Agent, err)
	}
	defer a.ch.Conn.Close()
	// From here on the driver says when what ends: a signal to all processes of a run, or
	// a time that all of them count, is the driver's.
	ctx, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	go a.beat(ctx)
	// The driver waits less for an agent than that for it: it can say whose fault it is.
	for {
		var n note
		if err := a.ch.Receive(wire.MaxNote, s.Silence*3/2, &n); err != nil {
			s.clear()
			return 0, &inSeat{fmt.Errorf("agent %d (%s) hears nothing of its driver, agent 0's process at %s: %w", s.Agent, a.at, s.Driver, err)}
		}
		switch n.Kind {
		case noteEnd:
			a.carriesNoMore()
			return n.Code, nil
		case noteCrew:
			if err := a.manned(n.Crew); err != nil {
				_ = a.tell(note{Kind: noteUnfit, Text: err.Error()}) // who does not hear it is gone
				return 0, &inSeat{fmt.Errorf("agent %d (%s): %w", s.Agent, a.at, err)}
			}
		default:
			a.heard(ctx, &n)
		}
	}
}

// manned notes that all agents have come.
func (a *agent) manned(c *crew) error {
	if c == nil {
		return nil
	}
	a.crew = *c
	if a.Share != nil {
		a.Share(max(1, c.Here))
	}
	a.carry()
	if c.Probe == "" {
		return nil
	}
	for _, dir := range a.Shared {
		if _, err := os.Stat(filepath.Join(dir, c.Probe)); err != nil {
			return fmt.Errorf("directory %s: is not that of agent 0's host: all hosts must share it: %w", dir, err)
		}
	}
	return nil
}

// beat tells the driver that this process lives.
func (a *agent) beat(ctx context.Context) {
	every := time.NewTicker(a.Silence / 6)
	defer every.Stop()
	for ctx.Err() == nil && a.tell(note{Kind: noteBeat}) == nil {
		<-every.C
	}
}

// tell sends the driver a note.
func (a *agent) tell(n note, behind ...[]byte) error { return a.ch.Send(n, a.Silence, behind...) }

// heard does what a note of the driver asks for.
func (a *agent) heard(ctx context.Context, n *note) {
	if n.Kind == noteTask {
		j := newJob(ctx, a, n)
		a.mu.Lock()
		a.jobs[n.Task] = j
		a.mu.Unlock()
		go a.do(j)
		return
	}
	a.mu.Lock()
	j := a.jobs[n.Task]
	a.mu.Unlock()
	if j == nil {
		return // it has ended here
	}
	switch n.Kind {
	case noteCancel:
		j.cancel(errors.New(n.Text))
	case noteFailed:
		j.forsake(errors.New(n.Text))
	case noteOpen:
		j.opened(n.World, n.Addr)
	case noteAnswer:
		j.answered(n.Step, n.Stop)
	case noteMeet:
		j.mu.Lock()
		defer j.mu.Unlock()
		j.met[n.Step] = n.Text
		j.change.Broadcast()
	}
}

// do does a task, and tells the driver what is left to tell.
func (a *agent) do(j *Job) {
	var out *launch.Outcome
	err := guard.Do(func() (err error) {
		out, err = a.work(j.ctx, j)
		return err
	})
	how := &ended{Rank: -1, Because: -1}
	if out != nil {
		err = errors.Join(err, j.rest(out.History))
	}
	if err != nil {
		how.Text = err.Error()
		var f *launch.Failure
		if errors.As(err, &f) {
			how.Rank, how.Because = f.Rank, f.Because()
		}
	}
	if err != nil && a.Failed != nil && how.Because < 0 && j.meeting.Err() == nil {
		a.Failed(err)
	}
	a.mu.Lock()
	delete(a.jobs, j.id)
	a.mu.Unlock()
	j.cancel(nil)
	j.mu.Lock()
	how.Links = slices.Sorted(maps.Keys(j.links))
	j.mu.Unlock()
	_ = a.tell(note{Kind: noteDone, Task: j.id, End: how}) // who does not hear it is gone
}

// Job is a task at an agent.
type Job struct {
	// What says what it is.
	What json.RawMessage
	// Dir is a directory that all agents may use.
	Dir string

	a         *agent
	id        int
	transport string
	ctx       context.Context
	cancel    context.CancelCauseFunc
	meeting   context.Context // ends when ranks of another agent will not come any more, or ctx does
	forsake   context.CancelCauseFunc

	mu      sync.Mutex
	change  sync.Cond       // of what follows, and of ctx
	worlds  int             // that were opened
	links   map[string]bool // ways by which there are some
	addrs   map[int]string
	answers map[int]bool // whether the run ends after a step
	meets   int          // at which this process was
	met     map[int]string
	asking  sync.Mutex
	streams map[int]*stream // by rank
}

func newJob(ctx context.Context, a *agent, n *note) *Job {
	j := &Job{What: n.What, Dir: n.Dir, a: a, id: n.Task, met: map[int]string{}, addrs: map[int]string{}, answers: map[int]bool{}, streams: map[int]*stream{}, links: map[string]bool{}}
	j.ctx, j.cancel = context.WithCancelCause(ctx)
	j.meeting, j.forsake = context.WithCancelCause(j.ctx)
	j.change.L = &j.mu
	context.AfterFunc(j.ctx, j.wake)
	return j
}

// opened notes where rank 0 of a world listens.
func (j *Job) opened(world int, addr string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.addrs[world] = addr
	j.change.Broadcast()
}

// answered notes whether the run ends after a step.
func (j *Job) answered(step int, stop bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.answers[step] = stop
	j.change.Broadcast()
}

// stop asks the driver whether the run ends after a step, once for all ranks of this
// process.
func (j *Job) stop(step int) bool {
	j.asking.Lock()
	defer j.asking.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	if stop, known := j.answers[step]; known {
		return stop
	}
	j.mu.Unlock()
	err := j.a.tell(note{Kind: noteAsk, Task: j.id, Step: step})
	j.mu.Lock()
	for {
		if stop, known := j.answers[step]; known || err != nil || j.ctx.Err() != nil {
			return stop
		}
		j.change.Wait()
	}
}

// Number is this agent's, from 0.
func (j *Job) Number() int { return j.a.Agent }

// First reports whether this agent carries rank 0 of every world.
func (j *Job) First() bool { return j.a.Agent == 0 }

// Meet returns when all agents of the task have called it, each with what went wrong
// with it, and gives what went wrong with any.
func (j *Job) Meet(ctx context.Context, wrong error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	number, text := j.meets, ""
	j.meets++
	if wrong != nil {
		text = wrong.Error()
	}
	j.mu.Unlock()
	err := j.a.tell(note{Kind: noteMeet, Task: j.id, Step: number, Text: text})
	wake := context.AfterFunc(ctx, j.wake)
	defer wake()
	j.mu.Lock()
	for err == nil {
		text, all := j.met[number]
		switch {
		case all && text != "":
			return errors.New(text)
		case all:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case j.ctx.Err() != nil:
			return context.Cause(j.ctx)
		}
		j.change.Wait()
	}
	return err
}

// wake wakes all that wait for a change.
func (j *Job) wake() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.change.Broadcast()
}
