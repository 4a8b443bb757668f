package simulator

import (
	"fmt"

	"github.com/lockstep-ml/lockstep/core/schedule"
)

// machine executes the stages' lists one action at a time, in any order of
// stages: with blocking calls and messages in order, the times do not depend on
// who is looked at first.
type machine struct {
	stages   [][]schedule.Action
	chunks   int
	costs    Costs
	buffer   int
	channels map[[2]int]*channel // by sender and receiver
	next     []int               // by stage: the action it is in
	offered  []bool              // by stage: a rendezvous send has been announced
	clock    []int64
	busy     []int64
	live     []tally
	unsent   []tally
	ready    []int // stages that may be able to go on
}

// channel is the messages from one stage to another so far.
type channel struct {
	sent  []message
	taken []int64 // times at which the receiver took the first messages
}

// message is a send; at is when it was offered, or with buffers when it arrives.
type message struct {
	schedule.Action
	at int64
}

// tally counts what is held, and the most that was.
type tally struct{ now, peak int }

func (t *tally) add(n int) {
	t.now += n
	t.peak = max(t.peak, t.now)
}

func newMachine(s schedule.Schedule, c Costs, buffer int) *machine {
	p := len(s.Stages)
	return &machine{stages: s.Stages, chunks: s.Chunks, costs: c, buffer: buffer, channels: map[[2]int]*channel{},
		next: make([]int, p), offered: make([]bool, p), clock: make([]int64, p), busy: make([]int64, p),
		live: make([]tally, p), unsent: make([]tally, p)}
}

func (m *machine) channel(from, to int) *channel {
	c := m.channels[[2]int{from, to}]
	if c == nil {
		c = &channel{}
		m.channels[[2]int{from, to}] = c
	}
	return c
}

// run executes the stage's actions until one has to wait.
func (m *machine) run(stage int) error {
	list := m.stages[stage]
	for m.next[stage] < len(list) {
		a, done := list[m.next[stage]], true
		switch {
		case a.Kind.IsPass():
			t := m.costs.of(stage, a)
			m.clock[stage] += t
			m.busy[stage] += t
		case a.Kind.IsSend():
			done = m.send(stage, a)
		default:
			var err error
			if done, err = m.receive(stage, a); err != nil {
				return err
			}
		}
		if !done {
			return nil
		}
		m.hold(stage, a)
		m.next[stage]++
	}
	return nil
}

// send reports whether the send of a is over.
func (m *machine) send(stage int, a schedule.Action) bool {
	c := m.channel(stage, a.Peer)
	if m.buffer == Rendezvous {
		if !m.offered[stage] {
			m.offered[stage] = true
			c.sent = append(c.sent, message{a, m.clock[stage]})
			m.ready = append(m.ready, a.Peer)
		}
		if len(c.taken) < len(c.sent) {
			return false
		}
		m.offered[stage] = false
		m.clock[stage] = c.taken[len(c.taken)-1]
		return true
	}
	if room := len(c.sent) - m.buffer; room >= 0 {
		if room >= len(c.taken) {
			return false
		}
		m.clock[stage] = max(m.clock[stage], c.taken[room])
	}
	c.sent = append(c.sent, message{a, m.clock[stage] + m.costs.Transfer})
	m.ready = append(m.ready, a.Peer)
	return true
}

// receive reports whether the receive of a is over.
func (m *machine) receive(stage int, a schedule.Action) (bool, error) {
	c := m.channel(a.Peer, stage)
	if len(c.sent) == len(c.taken) {
		return false, nil
	}
	got := c.sent[len(c.taken)]
	if want := opposite(stage, a, len(m.stages)); got.Action != want {
		return false, fmt.Errorf("stage %d, action %d: %v meets %v", stage, m.next[stage], a, got.Action)
	}
	t := max(m.clock[stage], got.at)
	if m.buffer == Rendezvous {
		t += m.costs.Transfer
	}
	m.clock[stage] = t
	c.taken = append(c.taken, t)
	m.ready = append(m.ready, a.Peer)
	return true, nil
}

// opposite is the send, on stage a.Peer, that receive a of a stage waits for.
func opposite(stage int, a schedule.Action, p int) schedule.Action {
	want := schedule.Action{Kind: schedule.SendForward, Micro: a.Micro, Chunk: a.Chunk, Peer: stage}
	if a.Kind == schedule.RecvBackward {
		want.Kind = schedule.SendBackward
		if stage == p-1 {
			want.Chunk++
		}
	} else if stage == 0 {
		want.Chunk--
	}
	return want
}

// hold counts activations and unsent results after action a of a stage.
func (m *machine) hold(stage int, a schedule.Action) {
	p := len(m.stages)
	first := stage == 0 && a.Chunk == 0
	last := stage == p-1 && a.Chunk == m.chunks-1
	switch a.Kind {
	case schedule.RecvForward:
		m.live[stage].add(1)
	case schedule.Forward:
		if first || p == 1 {
			m.live[stage].add(1)
		}
		if !last && p > 1 {
			m.unsent[stage].add(1)
		}
	case schedule.Backward:
		m.live[stage].add(-1)
		if !first && p > 1 {
			m.unsent[stage].add(1)
		}
	case schedule.SendForward, schedule.SendBackward:
		m.unsent[stage].add(-1)
	}
}

// deadlock is a *Deadlock if some stage is not at the end of its list.
func (m *machine) deadlock() error {
	at := func(s int) Wait {
		i := m.next[s]
		return Wait{s, i, m.stages[s][i]}
	}
	ended := func(s int) bool { return m.next[s] == len(m.stages[s]) }
	for s := range m.stages {
		if ended(s) {
			continue
		}
		d := &Deadlock{}
		place := map[int]int{} // of a stage in d.Waits
		for !ended(s) {
			if from, seen := place[s]; seen {
				d.Waits, d.Cycle = d.Waits[from:], true
				return d
			}
			place[s] = len(d.Waits)
			d.Waits = append(d.Waits, at(s))
			s = at(s).Action.Peer
		}
		d.Ended = s
		return d
	}
	return nil
}

func (m *machine) result() Result {
	r := Result{Busy: m.busy}
	for s := range m.stages {
		r.Finish = max(r.Finish, m.clock[s])
		r.PeakLive = append(r.PeakLive, m.live[s].peak)
		r.PeakUnsent = append(r.PeakUnsent, m.unsent[s].peak)
	}
	return r
}
