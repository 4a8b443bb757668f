package simulator

import (
	"fmt"

	"github.com/lockstep-ml/lockstep/core/schedule"
)

func at(stage, i int, a schedule.Action, what string) error {
	return fmt.Errorf("stage %d, action %d, %v: %s", stage, i, a, what)
}

// Check verifies that a schedule computes one step: on every stage each
// micro-batch runs forward and backward exactly once through each chunk, what a
// pass needs is at hand, what it makes is sent once to the neighbour, backward
// passes of a chunk ascend by micro-batch, and between two stages the sends and
// receives are the same messages in the same order. It does not look for
// deadlocks: see Run.
func Check(s schedule.Schedule) error {
	if err := s.Validate(); err != nil {
		return err
	}
	for stage := range s.Stages {
		c := checker{s: &s, stage: stage, done: make([][]bool, schedule.RecvBackward+1), backward: make([]int, s.Chunks)}
		for k := range c.done {
			c.done[k] = make([]bool, s.Chunks*s.Micros)
		}
		if err := c.run(); err != nil {
			return err
		}
	}
	return checkMessages(s)
}

// checker walks the list of one stage.
type checker struct {
	s        *schedule.Schedule
	stage    int
	done     [][]bool // by kind, chunk and micro-batch
	backward []int    // by chunk: the next micro-batch of Backward
}

func (c *checker) has(k schedule.Kind, a schedule.Action) bool {
	return c.done[k][a.Chunk*c.s.Micros+a.Micro]
}

// neighbours of chunk v: the stage before it, and behind it; -1 at the ends of
// the model.
func (c *checker) neighbours(v int) (up, down int) {
	p := len(c.s.Stages)
	up, down = (c.stage+p-1)%p, (c.stage+1)%p
	if c.stage == 0 && v == 0 {
		up = -1
	}
	if c.stage == p-1 && v == c.s.Chunks-1 {
		down = -1
	}
	return up, down
}

func (c *checker) run() error {
	for i, a := range c.s.Stages[c.stage] {
		what := c.needs(a)
		if what == "" && c.has(a.Kind, a) {
			what = "done before"
		}
		if what != "" {
			return at(c.stage, i, a, what)
		}
		c.done[a.Kind][a.Chunk*c.s.Micros+a.Micro] = true
		if a.Kind == schedule.Backward {
			c.backward[a.Chunk]++
		}
	}
	return c.complete()
}

// needs says what is missing for a; "" if nothing.
func (c *checker) needs(a schedule.Action) string {
	up, down := c.neighbours(a.Chunk)
	switch a.Kind {
	case schedule.Forward:
		return c.input(a, up, schedule.RecvForward, schedule.Forward, -1)
	case schedule.Backward:
		if !c.has(schedule.Forward, a) {
			return "its forward pass has not run"
		}
		if a.Micro != c.backward[a.Chunk] {
			return fmt.Sprintf("the chunk's next backward pass is of micro-batch %d", c.backward[a.Chunk])
		}
		return c.input(a, down, schedule.RecvBackward, schedule.Backward, +1)
	case schedule.SendForward:
		return c.send(a, down, schedule.Forward)
	case schedule.SendBackward:
		return c.send(a, up, schedule.Backward)
	case schedule.RecvForward:
		return c.peer(a, up)
	}
	return c.peer(a, down)
}

// input says whether pass a lacks what stage from hands to it: by message, or
// on a single stage by the pass of the chunk step further.
func (c *checker) input(a schedule.Action, from int, recv, pass schedule.Kind, step int) string {
	if from == c.stage {
		b := a
		b.Chunk += step
		if !c.has(pass, b) {
			return fmt.Sprintf("%v of chunk %d has not run", pass, b.Chunk)
		}
		return ""
	}
	if from >= 0 && !c.has(recv, a) {
		return fmt.Sprintf("nothing was received from stage %d", from)
	}
	return ""
}

func (c *checker) send(a schedule.Action, to int, pass schedule.Kind) string {
	if !c.has(pass, a) {
		return "the pass has not run"
	}
	return c.peer(a, to)
}

func (c *checker) peer(a schedule.Action, want int) string {
	if want < 0 {
		return "the model ends here"
	}
	if a.Peer != want {
		return fmt.Sprintf("its neighbour is stage %d", want)
	}
	return ""
}

// complete says which action the list lacks. What was done is right, so only
// passes and sends can lack.
func (c *checker) complete() error {
	for v := range c.s.Chunks {
		up, down := c.neighbours(v)
		for m := range c.s.Micros {
			for _, x := range []struct {
				kind schedule.Kind
				peer int
			}{{schedule.Forward, c.stage}, {schedule.Backward, c.stage}, {schedule.SendForward, down}, {schedule.SendBackward, up}} {
				a := schedule.Action{Kind: x.kind, Micro: m, Chunk: v, Peer: x.peer}
				needed := x.kind.IsPass() || x.peer >= 0 && x.peer != c.stage
				if needed && !c.has(x.kind, a) {
					return fmt.Errorf("stage %d lacks %v", c.stage, a)
				}
			}
		}
	}
	return nil
}

// checkMessages compares sends and receives between each two stages.
func checkMessages(s schedule.Schedule) error {
	sent, wanted := map[[2]int][]schedule.Action{}, map[[2]int][]schedule.Action{}
	for stage, list := range s.Stages {
		for _, a := range list {
			switch {
			case a.Kind.IsPass():
			case a.Kind.IsSend():
				k := [2]int{stage, a.Peer}
				sent[k] = append(sent[k], a)
			default:
				k := [2]int{a.Peer, stage}
				wanted[k] = append(wanted[k], opposite(stage, a, len(s.Stages)))
			}
		}
	}
	// Every peer is a neighbour: needs has seen to that.
	for from := range s.Stages {
		for _, step := range []int{1, len(s.Stages) - 1} {
			k := [2]int{from, (from + step) % len(s.Stages)}
			if err := compareMessages(k, sent[k], wanted[k]); err != nil {
				return err
			}
		}
	}
	return nil
}

// compareMessages takes lists of the same length: every pass has its send and
// its receive, and no other is left.
func compareMessages(k [2]int, sent, wanted []schedule.Action) error {
	for i := range sent {
		if sent[i] != wanted[i] {
			return fmt.Errorf("stage %d, message %d to stage %d: sends %v, but %v is received", k[0], i, k[1], sent[i], wanted[i])
		}
	}
	return nil
}
