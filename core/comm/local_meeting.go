package comm

import (
	"context"
	"time"

	"github.com/lockstep-ml/lockstep/core/names"
)

// mismatchGrace is how long a group that knows of a mismatch waits for the
// other ranks' calls, so that the error can say which rank is the odd one.
const mismatchGrace = 100 * time.Millisecond

// meeting is one collective of one group. Ranks arrive with their calls; when
// the last has come, all wake and do their part of the work on the buffers of
// all; when the last is done, all wake again and return.
type meeting struct {
	calls   []*call // by rank, nil until the rank arrives
	roll    roll    // their headers
	arrived int
	started bool // all arrived, and their calls fit

	gone    []bool // by rank: done with its part
	departs int
	failed  *failure // of a rank's part; read when all are gone

	groups []*group // of a split: by rank, nil for negative colors
}

// meet runs one collective. work is this rank's part; nil where arriving is all
// there is to do.
func (c *local) meet(ctx context.Context, k *call, work func(*meeting) error) (m *meeting, err error) {
	err = ErrPanicked // unless something else is known
	defer func() { c.end(k, err) }()
	k.ctx = ctx
	m, f := c.arrive(ctx, k, work != nil)
	if f == nil && work != nil {
		f = c.perform(m, work)
	}
	if f != nil {
		err = c.error(k, f)
		return nil, err
	}
	return m, nil
}

// arrive brings a call to the group's meeting and waits for the other ranks'.
func (c *local) arrive(ctx context.Context, k *call, works bool) (*meeting, *failure) {
	w := c.g.w
	why := c.prepare(ctx, k)
	w.mu.Lock()
	k.seq = c.g.seq
	if why != nil {
		defer w.mu.Unlock()
		return nil, c.g.interrupted(c.rank, k, why, nil)
	}
	m, f := c.g.join(c.rank, k, works)
	w.mu.Unlock()
	if f != nil {
		return nil, f
	}
	why = w.wait(ctx, &k.alarm, k.wake)
	if why == nil {
		return m, nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if m.started {
		<-k.wake // the last rank came meanwhile and counts on this one
		return m, nil
	}
	return nil, c.g.interrupted(c.rank, k, why, m.roll.missing(c.g.ranks))
}

// prepare refuses a context that has ended, and waits until this rank's buffers
// hold what earlier kernels compute.
func (c *local) prepare(ctx context.Context, k *call) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if k.src.Absent() && k.dst.Absent() {
		return nil
	}
	return c.be.Sync()
}

// join adds a rank's call to the meeting in progress and starts it when all
// have come. The caller holds the world's mutex.
func (g *group) join(rank int, k *call, works bool) (*meeting, *failure) {
	if f := g.admit(rank, k); f != nil {
		return nil, f
	}
	if g.meeting == nil {
		g.meeting = g.convene()
	}
	m := g.meeting
	m.calls[rank], m.roll[rank] = k, &k.header
	m.arrived++
	for r, other := range m.calls {
		if other == nil && g.hasLeft(g.ranks[r]) {
			return nil, g.w.fail(needsLeft(g.ranks, g.ranks[r], &k.header))
		}
	}
	for r, other := range g.busy {
		if other != nil && other.isMessage() {
			if err := g.stuck(r); err != nil {
				return nil, g.w.fail(failure{-1, err})
			}
		}
	}
	f := g.startOrFail(m, k, works)
	if f == nil && !m.started {
		g.stops(rank, k)
	}
	return m, f
}

// convene clears a meeting for the next collective. Two take turns: a rank that
// comes to the next but one has been through the next one, to which every rank
// came after it was done with this one.
func (g *group) convene() *meeting {
	m, n := &g.meetings[g.seq%2], len(g.ranks)
	if m.calls == nil {
		m.calls, m.roll, m.gone = make([]*call, n), make(roll, n), make([]bool, n)
	}
	clear(m.calls)
	clear(m.roll)
	clear(m.gone)
	*m = meeting{calls: m.calls, roll: m.roll, gone: m.gone}
	return m
}

// wake tells every rank that the meeting has started, or is over. Each has
// taken what it was told before.
func (m *meeting) wake() {
	for _, k := range m.calls {
		k.goesOn()
		k.wake <- struct{}{}
	}
}

// startOrFail starts a meeting that is complete, and fails one whose calls do
// not fit: at once if all are known, else after a grace.
func (g *group) startOrFail(m *meeting, k *call, works bool) *failure {
	all := m.arrived == len(m.calls)
	if fitting := m.roll.fitting(&k.header); fitting != m.arrived {
		if all {
			return g.w.fail(m.roll.mismatch(g.ranks))
		}
		if g.w.opts.Turns != nil { // which notices when nobody can come
			return nil
		}
		time.AfterFunc(min(mismatchGrace, g.w.opts.Deadline), func() {
			g.w.mu.Lock()
			defer g.w.mu.Unlock()
			g.w.fail(m.roll.mismatch(g.ranks))
		})
		return nil
	}
	if !all {
		return nil
	}
	if k.op == names.OpSplit {
		m.groups = g.split(m.roll)
	}
	if !works {
		g.finish(m)
	}
	m.started = true
	m.wake()
	return nil
}

// finish ends a meeting: its ranks are free for the next one.
func (g *group) finish(m *meeting) {
	g.meeting = nil
	g.seq++
	clear(g.busy)
}

// perform does this rank's part of the work and waits for the other ranks'.
func (c *local) perform(m *meeting, work func(*meeting) error) (f *failure) {
	err := ErrPanicked
	defer func() { f = c.depart(m, err) }()
	if err = work(m); err == nil {
		err = c.be.Sync()
	}
	return nil
}

// depart says that this rank's part is done, well if err is nil, and waits
// until all are: until then peers are at work on this rank's buffers.
func (c *local) depart(m *meeting, err error) *failure {
	w, g, k := c.g.w, c.g, m.calls[c.rank]
	w.mu.Lock()
	if err != nil {
		m.failed = w.fail(broken(g.ranks, c.rank, &k.header, err))
	}
	m.gone[c.rank] = true
	if m.departs++; m.departs == len(m.calls) {
		g.finish(m)
		m.wake()
	}
	w.mu.Unlock()
	if w.settle(&k.alarm, k.wake) == nil {
		return m.failed
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var late []int
	for r, gone := range m.gone {
		if !gone {
			late = append(late, g.ranks[r])
		}
	}
	if len(late) == 0 {
		<-k.wake
		return m.failed
	}
	return g.interrupted(c.rank, k, ErrDeadline, late)
}
