package schedule

import "fmt"

// simulation executes the stages' lists one action at a time, in any order of
// stages: with blocking calls and messages in order, the times do not depend on
// who is looked at first.
type simulation struct {
	stages   [][]Action
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
	Action
	at int64
}

// tally counts what is held, and the most that was.
type tally struct{ now, peak int }

func (t *tally) add(n int) {
	t.now += n
	t.peak = max(t.peak, t.now)
}

func newSimulation(s Schedule, c Costs, buffer int) *simulation {
	p := len(s.Stages)
	return &simulation{stages: s.Stages, chunks: s.Chunks, costs: c, buffer: buffer, channels: map[[2]int]*channel{},
		next: make([]int, p), offered: make([]bool, p), clock: make([]int64, p), busy: make([]int64, p),
		live: make([]tally, p), unsent: make([]tally, p)}
}

func (sim *simulation) channel(from, to int) *channel {
	c := sim.channels[[2]int{from, to}]
	if c == nil {
		c = &channel{}
		sim.channels[[2]int{from, to}] = c
	}
	return c
}

// run executes the stage's actions until one has to wait.
func (sim *simulation) run(stage int) error {
	list := sim.stages[stage]
	for sim.next[stage] < len(list) {
		a, done := list[sim.next[stage]], true
		switch {
		case a.Kind.isPass():
			t := sim.costs.of(stage, a)
			sim.clock[stage] += t
			sim.busy[stage] += t
		case a.Kind.isSend():
			done = sim.send(stage, a)
		default:
			var err error
			if done, err = sim.receive(stage, a); err != nil {
				return err
			}
		}
		if !done {
			return nil
		}
		sim.hold(stage, a)
		sim.next[stage]++
	}
	return nil
}

// send reports whether the send of a is over.
func (sim *simulation) send(stage int, a Action) bool {
	c := sim.channel(stage, a.Peer)
	if sim.buffer == Rendezvous {
		if !sim.offered[stage] {
			sim.offered[stage] = true
			c.sent = append(c.sent, message{a, sim.clock[stage]})
			sim.ready = append(sim.ready, a.Peer)
		}
		if len(c.taken) < len(c.sent) {
			return false
		}
		sim.offered[stage] = false
		sim.clock[stage] = c.taken[len(c.taken)-1]
		return true
	}
	if room := len(c.sent) - sim.buffer; room >= 0 {
		if room >= len(c.taken) {
			return false
		}
		sim.clock[stage] = max(sim.clock[stage], c.taken[room])
	}
	c.sent = append(c.sent, message{a, sim.clock[stage] + sim.costs.Transfer})
	sim.ready = append(sim.ready, a.Peer)
	return true
}

// receive reports whether the receive of a is over.
func (sim *simulation) receive(stage int, a Action) (bool, error) {
	c := sim.channel(a.Peer, stage)
	if len(c.sent) == len(c.taken) {
		return false, nil
	}
	got := c.sent[len(c.taken)]
	if want := opposite(stage, a, len(sim.stages)); got.Action != want {
		return false, fmt.Errorf("stage %d, action %d: %v meets %v", stage, sim.next[stage], a, got.Action)
	}
	t := max(sim.clock[stage], got.at)
	if sim.buffer == Rendezvous {
		t += sim.costs.Transfer
	}
	sim.clock[stage] = t
	c.taken = append(c.taken, t)
	sim.ready = append(sim.ready, a.Peer)
	return true, nil
}

// opposite is the send, on stage a.Peer, that receive a of a stage waits for.
func opposite(stage int, a Action, p int) Action {
	want := Action{Kind: SendForward, Micro: a.Micro, Chunk: a.Chunk, Peer: stage}
	if a.Kind == RecvBackward {
		want.Kind = SendBackward
		if stage == p-1 {
			want.Chunk++
		}
	} else if stage == 0 {
		want.Chunk--
	}
	return want
}

// hold counts activations and unsent results after action a of a stage.
func (sim *simulation) hold(stage int, a Action) {
	p := len(sim.stages)
	first := stage == 0 && a.Chunk == 0
	last := stage == p-1 && a.Chunk == sim.chunks-1
	switch a.Kind {
	case RecvForward:
		sim.live[stage].add(1)
	case Forward:
		if first || p == 1 {
			sim.live[stage].add(1)
		}
		if !last && p > 1 {
			sim.unsent[stage].add(1)
		}
	case Backward:
		sim.live[stage].add(-1)
		if !first && p > 1 {
			sim.unsent[stage].add(1)
		}
	case SendForward, SendBackward:
		sim.unsent[stage].add(-1)
	}
}

// deadlock is a *Deadlock if some stage is not at the end of its list.
func (sim *simulation) deadlock() error {
	at := func(s int) Wait {
		i := sim.next[s]
		return Wait{s, i, sim.stages[s][i]}
	}
	ended := func(s int) bool { return sim.next[s] == len(sim.stages[s]) }
	for s := range sim.stages {
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

func (sim *simulation) result() Result {
	r := Result{Busy: sim.busy}
	for s := range sim.stages {
		r.Finish = max(r.Finish, sim.clock[s])
		r.PeakLive = append(r.PeakLive, sim.live[s].peak)
		r.PeakUnsent = append(r.PeakUnsent, sim.unsent[s].peak)
	}
	return r
}
