package schedule

import (
	"cmp"
	"fmt"
	"slices"
)

// timetable gives the slot in which a stage runs a pass. Slots order passes,
// they are not times: a pass has a later slot than every pass that it needs,
// and a stage runs one pass per slot at most.
type timetable struct {
	forward, backward func(stage, micro, chunk int) int
}

// entry is an action with its place in the global order.
type entry struct {
	Action
	key int
}

// assemble writes down the stages' lists. The global order is by slot. A
// transfer has the slot of the pass that needs it and comes before the passes
// of that slot: as late as the receiver allows, so that a stage never takes an
// input before it has room. Among the transfers of a slot those of colour 0
// come first, and on one connection activations before gradients. Connections
// that meet in a stage have different colours, so the transfers of a slot need
// two rounds (three round a ring of odd length), not one after another down the
// pipeline.
func assemble(name string, p, v, m int, t timetable) (Schedule, error) {
	if err := checkSizes(p, v, m); err != nil {
		return Schedule{}, fmt.Errorf("%s: %w", name, err)
	}
	out := Schedule{Name: name, Chunks: v, Micros: m, Stages: make([][]Action, p)}
	b := builder{timetable: t, p: p, last: p*v - 1}
	for s := range p {
		b.list = make([]entry, 0, 6*v*m)
		for micro := range m {
			for chunk := range v {
				b.forwardOf(s, micro, chunk)
				b.backwardOf(s, micro, chunk)
			}
		}
		slices.SortFunc(b.list, func(x, y entry) int { return cmp.Compare(x.key, y.key) })
		out.Stages[s] = make([]Action, len(b.list))
		for i, e := range b.list {
			out.Stages[s][i] = e.Action
		}
	}
	return out, nil
}

// builder collects the entries of one stage.
type builder struct {
	timetable
	p, last int // stages; the last virtual stage
	list    []entry
}

// forwardOf adds a forward pass of stage s, the receive before it and the send
// after it. Between two chunks on a single stage nothing moves.
func (b *builder) forwardOf(s, micro, chunk int) {
	u := chunk*b.p + s
	up, down := (s+b.p-1)%b.p, (s+1)%b.p
	slot := b.forward(s, micro, chunk)
	b.pass(Forward, micro, chunk, slot)
	if u > 0 && b.p > 1 {
		b.transfer(RecvForward, micro, chunk, up, slot, up)
	}
	if u < b.last && b.p > 1 {
		b.transfer(SendForward, micro, chunk, down, b.forward(down, micro, (u+1)/b.p), s)
	}
}

// backwardOf is forwardOf for the backward pass.
func (b *builder) backwardOf(s, micro, chunk int) {
	u := chunk*b.p + s
	up, down := (s+b.p-1)%b.p, (s+1)%b.p
	slot := b.backward(s, micro, chunk)
	b.pass(Backward, micro, chunk, slot)
	if u < b.last && b.p > 1 {
		b.transfer(RecvBackward, micro, chunk, down, slot, s)
	}
	if u > 0 && b.p > 1 {
		b.transfer(SendBackward, micro, chunk, up, b.backward(up, micro, (u-1)/b.p), up)
	}
}

// keys is the number of places within a slot: three colours of two directions,
// then the passes.
const keys = 7

func (b *builder) pass(k Kind, micro, chunk, slot int) {
	b.list = append(b.list, entry{Action{k, micro, chunk, -1}, slot*keys + keys - 1})
}

// transfer adds a send or receive on connection c, which joins stages c and c+1
// (or the last stage and stage 0).
func (b *builder) transfer(k Kind, micro, chunk, peer, slot, c int) {
	colour, direction := c%2, 0
	if c == b.p-1 && b.p%2 == 1 {
		colour = 2
	}
	if k == SendBackward || k == RecvBackward {
		direction = 1
	}
	b.list = append(b.list, entry{Action{k, micro, chunk, peer}, slot*keys + 2*colour + direction})
}
