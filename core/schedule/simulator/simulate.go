// Package simulator checks pipeline schedules and runs them on a clock: what they
// need, what is live, where they wait. Training follows a schedule without it.
package simulator

import (
	"fmt"
	"strings"

	"github.com/lockstep-ml/lockstep/core/schedule"
)

// Costs are the times that a simulation assumes, in a unit of the caller's
// choice.
type Costs struct {
	// Forward and Backward give the time of a pass, at least 0; nil is 1 for
	// every pass.
	Forward, Backward func(stage, chunk int) int64
	// Transfer is the time from the send of a message to its arrival, at least 0.
	Transfer int64
}

func (c Costs) of(stage int, a schedule.Action) int64 {
	f := c.Forward
	if a.Kind == schedule.Backward {
		f = c.Backward
	}
	if f == nil {
		return 1
	}
	return f(stage, a.Chunk)
}

// Result is what a simulation found.
type Result struct {
	Finish int64   // when the last stage ends
	Busy   []int64 // by stage: time spent in passes
	// PeakLive is, by stage, the most micro-batches (of any chunk) whose
	// activations are held at once: from RecvForward, or where nothing is
	// received from Forward, to the end of Backward.
	PeakLive []int
	// PeakUnsent is, by stage, the most outputs and input gradients held at once
	// between the pass that made them and the end of their send: at most 1 for
	// OneF1B and GPipe, 2 for Interleaved.
	PeakUnsent []int
}

// IdleShare is the share of the time of all stages in which no pass runs.
func (r Result) IdleShare() float64 {
	var busy int64
	for _, b := range r.Busy {
		busy += b
	}
	all := r.Finish * int64(len(r.Busy))
	if all == 0 {
		return 0
	}
	return float64(all-busy) / float64(all)
}

// Overhead is the idle time over the time of passes, of all stages.
func (r Result) Overhead() float64 { return r.IdleShare() / (1 - r.IdleShare()) }

// Wait is a stage that cannot go on.
type Wait struct {
	Stage, Index int // the stage, and which of its actions it is in
	Action       schedule.Action
}

// Deadlock is the error of a schedule that comes to a stop.
type Deadlock struct {
	// Waits are stages each of which waits for the next. If Cycle, the last one
	// waits for the first; else for stage Ended, whose list is at its end.
	Waits []Wait
	Cycle bool
	Ended int
}

// Error lists the stages that wait for each other.
func (d *Deadlock) Error() string {
	var b strings.Builder
	b.WriteString("deadlock: ")
	for _, w := range d.Waits {
		fmt.Fprintf(&b, "stage %d waits in action %d, %v; ", w.Stage, w.Index, w.Action)
	}
	if d.Cycle {
		b.WriteString("they wait in a cycle")
	} else {
		fmt.Fprintf(&b, "stage %d has ended", d.Ended)
	}
	return b.String()
}

// Rendezvous is the buffer size of Run with which a send returns only once
// the receiver has the message.
const Rendezvous = 0

// Run runs s with blocking sends and receives: for every ordered pair of
// stages, buffer messages may be under way; with Rendezvous none. Messages
// between two stages arrive in the order of their sends. A stage that can never
// go on is a *Deadlock; a receive that meets another message than its own is an
// error too. Run does not look at what a pass needs: see Check.
func Run(s schedule.Schedule, c Costs, buffer int) (Result, error) {
	if buffer < 0 {
		return Result{}, fmt.Errorf("buffer of %d messages: must not be negative", buffer)
	}
	if err := s.Validate(); err != nil {
		return Result{}, err
	}
	m := newMachine(s, c, buffer)
	for s := range m.stages {
		m.ready = append(m.ready, s)
	}
	for len(m.ready) > 0 {
		stage := m.ready[len(m.ready)-1]
		m.ready = m.ready[:len(m.ready)-1]
		if err := m.run(stage); err != nil {
			return Result{}, err
		}
	}
	if err := m.deadlock(); err != nil {
		return Result{}, err
	}
	return m.result(), nil
}
