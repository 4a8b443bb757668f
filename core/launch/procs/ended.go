//go:build unix

package procs

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/lockstep-ml/lockstep/core/launch"
)

// failed is an agent's part that went wrong.
type failed struct {
	agent int
	how   *ended
}

// ends notes that a task has ended in an agent. Where it went wrong there the others hear
// so: those whose ranks have met hear by themselves, those that wait for them do not.
func (r *run) ends(agent int, how *ended) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.ended[agent]; known || !slices.Contains(r.takes, agent) {
		return
	}
	r.ended[agent] = how
	if how != nil && how.Text != "" {
		r.failed = append(r.failed, failed{agent, how})
	}
	if len(r.ended) == len(r.takes) {
		close(r.done)
		return
	}
	r.warn()
	r.meet(agent, r.meets.number, fmt.Sprintf("agent %d has ended its part", agent))
}

// begun notes that all who take part know of the task.
func (r *run) begun() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known = true
	r.warn()
}

// warn tells all agents once that one's part went wrong: not before they know of the task, as then
// it would be of none. The caller holds mu.
func (r *run) warn() {
	if r.known && len(r.failed) > 0 && !r.warned {
		r.warned = true
		go r.say(note{Kind: noteFailed, Task: r.id, Text: r.failed[0].how.Text}, r.takes)
	}
}

// meeting is one that agents have come to.
type meeting struct {
	number int          // from 0
	come   map[int]bool // agents
	wrong  string       // the first thing that is
}

// meet notes that an agent has come to a meeting, with what is wrong, or that it will
// not come to any more. The caller holds mu.
func (r *run) meet(agent, number int, wrong string) {
	m := &r.meets
	if number != m.number || m.come[agent] {
		return
	}
	if m.come == nil {
		m.come = map[int]bool{}
	}
	m.come[agent] = true
	m.wrong = cmp.Or(m.wrong, wrong)
	if len(m.come) < len(r.takes) {
		return
	}
	n := note{Kind: noteMeet, Task: r.id, Step: m.number, Text: m.wrong}
	*m = meeting{number: m.number + 1}
	go r.say(n, r.takes)
	for i := range r.ended {
		r.meet(i, m.number, fmt.Sprintf("agent %d has ended its part", i))
	}
}

// said is why a run failed by what its agents say: of those that follow from none of the
// others the one that was heard of first. The caller holds mu.
func (r *run) said(t *Team) error {
	for _, i := range r.takes {
		if r.ended[i] == nil {
			return fmt.Errorf("agent %d has not ended its part within %v", i, patienceAfter)
		}
	}
	f, wrong := launch.Cause(r.failed, func(f failed) int { return f.how.Rank }, func(f failed) int { return f.how.Because })
	switch {
	case !wrong:
		return nil
	case t.seat.Apart:
		return fmt.Errorf("%v: %s", t.children[f.agent], f.how.Text)
	}
	return errors.New(f.how.Text)
}
