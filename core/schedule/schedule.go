// Package schedule is the pure arithmetic of pipeline schedules: which pass a
// stage runs when, when it talks to its neighbours, what that costs in idle
// time and live activations, and whether it can deadlock. It runs nothing and
// imports nothing of this module.
//
// A stage executes its list of actions from first to last with plain blocking
// calls. The lists of all stages are one global order of passes and transfers,
// each restricted to the actions that concern the stage. Hence no schedule can
// deadlock, even where a send returns only once the receiver has the message:
// the earliest action of the global order that has not been executed is next in
// the list of every stage it concerns.
//
// Letters: P stages, V chunks per stage, M micro-batches per step. Chunk c of
// stage s is the virtual stage c*P+s; chunk c's output on the last stage goes
// to chunk c+1 on stage 0.
package schedule

import "fmt"

// Kind is what an action does.
type Kind uint8

// The kinds. A send follows the pass of the same micro-batch and chunk on its
// stage; a receive precedes it.
const (
	Forward      Kind = 1 + iota // the forward pass
	Backward                     // the backward pass
	SendForward                  // the output of Forward goes to Peer
	RecvForward                  // the input of Forward comes from Peer
	SendBackward                 // the input gradient of Backward goes to Peer
	RecvBackward                 // the output gradient of Backward comes from Peer
)

// String is the kind's name.
func (k Kind) String() string {
	switch k {
	case Forward:
		return "Forward"
	case Backward:
		return "Backward"
	case SendForward:
		return "SendForward"
	case RecvForward:
		return "RecvForward"
	case SendBackward:
		return "SendBackward"
	case RecvBackward:
		return "RecvBackward"
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// IsPass reports whether the action computes.
func (k Kind) IsPass() bool { return k == Forward || k == Backward }

// IsSend reports whether it sends.
func (k Kind) IsSend() bool { return k == SendForward || k == SendBackward }

// Action is one entry of a stage's list.
type Action struct {
	Kind Kind
	// Micro and Chunk name the pass, always by this stage's own chunk: on stage
	// 0, RecvForward of chunk 1 receives what chunk 0 of the last stage sent.
	Micro, Chunk int
	Peer         int // the other stage of a send or receive; -1 for passes
}

// String prints the action as it stands in messages.
func (a Action) String() string {
	s := fmt.Sprintf("%v of micro-batch %d, chunk %d", a.Kind, a.Micro, a.Chunk)
	switch {
	case a.Kind.IsPass():
		return s
	case a.Kind.IsSend():
		return fmt.Sprintf("%s to stage %d", s, a.Peer)
	}
	return fmt.Sprintf("%s from stage %d", s, a.Peer)
}

// Names of the schedules.
const (
	NameOneF1B      = "1f1b"
	NameGPipe       = "gpipe"
	NameInterleaved = "interleaved"
)

// Schedule is the actions of one optimizer step.
type Schedule struct {
	Name   string
	Chunks int // V: chunks per stage
	Micros int // M: micro-batches
	// Stages holds each stage's actions in the order of execution.
	Stages [][]Action
}

// MaxPasses bounds P*V*M, the forward passes of a schedule.
const MaxPasses = 1 << 24

// checkSizes refuses counts below 1 and schedules too large to write down.
func checkSizes(p, v, m int) error {
	for _, x := range []struct {
		name string
		n    int
	}{{"stages", p}, {"chunks", v}, {"micro-batches", m}} {
		if x.n < 1 || x.n > MaxPasses {
			return fmt.Errorf("%d %s: must be from 1 to %d", x.n, x.name, MaxPasses)
		}
	}
	if n := int64(p) * int64(v); n > MaxPasses || n*int64(m) > MaxPasses {
		return fmt.Errorf("%d stages with %d chunks and %d micro-batches: more than %d forward passes", p, v, m, MaxPasses)
	}
	return nil
}

// Named is the schedule of a name for p stages, v chunks on each (where the
// schedule has chunks) and m micro-batches.
func Named(name string, p, v, m int) (Schedule, error) {
	switch name {
	case NameOneF1B:
		return OneF1B(p, m)
	case NameGPipe:
		return GPipe(p, m)
	case NameInterleaved:
		return Interleaved(p, v, m)
	}
	return Schedule{}, fmt.Errorf("schedule %q: known are %s, %s, %s", name, NameOneF1B, NameGPipe, NameInterleaved)
}

// OneF1B is the schedule "one forward, one backward" of p stages and m
// micro-batches (PipeDream-flush; Megatron-LM without interleaving): stage s
// starts with min(p-s-1, m) forward passes, then alternates, so at most
// min(p-s, m) micro-batches are live on it. m < p works; stages idle longer.
func OneF1B(p, m int) (Schedule, error) {
	return assemble(NameOneF1B, p, 1, m, oneF1B(p))
}

func oneF1B(p int) timetable {
	return timetable{
		forward:  func(s, micro, _ int) int { return s + 2*micro },
		backward: func(s, micro, _ int) int { return 2*p - 1 - s + 2*micro },
	}
}

// GPipe is the schedule that runs all forward passes, then all backward passes,
// both by ascending micro-batch: all m micro-batches are live on every stage.
func GPipe(p, m int) (Schedule, error) {
	return assemble(NameGPipe, p, 1, m, timetable{
		forward:  func(s, micro, _ int) int { return s + micro },
		backward: func(s, micro, _ int) int { return m + 2*(p-1) - s + micro },
	})
}

// Interleaved is Megatron-LM's interleaved 1F1B of p stages with v chunks each.
// Micro-batches go in groups of p through chunk after chunk; stage s starts
// with 2(p-s-1)+(v-1)p forward passes, then alternates. Slots come in pairs,
// one for a forward and one for a backward pass, so stages keep in step
// whatever the two cost. With v = 1 it is OneF1B.
//
// Where p does not divide m (Megatron-LM refuses that), it is the schedule of
// the next multiple of p without the passes of the micro-batches that do not
// exist: what is left of a global order is one.
func Interleaved(p, v, m int) (Schedule, error) {
	if v == 1 {
		return assemble(NameInterleaved, p, v, m, oneF1B(p))
	}
	// index of a pass on its stage, if chunk is the place of its chunk in line.
	index := func(micro, chunk int) int { return micro/p*p*v + chunk*p + micro%p }
	return assemble(NameInterleaved, p, v, m, timetable{
		forward:  func(s, micro, chunk int) int { return 2 * (s + index(micro, chunk)) },
		backward: func(s, micro, chunk int) int { return 2*(s+interleavedWarmup(s, p, v)+index(micro, v-1-chunk)) + 1 },
	})
}

// interleavedWarmup is the number of forward passes before stage s's first
// backward pass, if the step has as many.
func interleavedWarmup(s, p, v int) int { return 2*(p-s-1) + (v-1)*p }

// Validate refuses actions that name a stage, chunk or micro-batch that
// does not exist.
func (s Schedule) Validate() error {
	p := len(s.Stages)
	if err := checkSizes(p, s.Chunks, s.Micros); err != nil {
		return err
	}
	for stage, list := range s.Stages {
		for i, a := range list {
			ok := a.Micro >= 0 && a.Micro < s.Micros && a.Chunk >= 0 && a.Chunk < s.Chunks && a.Kind >= Forward && a.Kind <= RecvBackward
			if !ok {
				return fmt.Errorf("stage %d, action %d, %v: not an action of %d micro-batches and %d chunks", stage, i, a, s.Micros, s.Chunks)
			}
			if !a.Kind.IsPass() && (a.Peer < 0 || a.Peer >= p || a.Peer == stage) {
				return fmt.Errorf("stage %d, action %d, %v: not another one of %d stages", stage, i, a, p)
			}
		}
	}
	return nil
}
