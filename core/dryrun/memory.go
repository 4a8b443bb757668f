package dryrun

import (
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/parallel"
	"github.com/lockstep-ml/lockstep/core/shard"
)

// Memory is the bytes of a rank, in the step with the most.
type Memory struct {
	Weights   int64 `json:"weights"`   // at rest
	Gradients int64 `json:"gradients"` // the buffers of the binary counter
	Moments   int64 `json:"moments"`
	// FullGradient is where backward passes of ZeRO stages 2 and 3 write before
	// the reduce-scatter: at most the units in flight, or everything where a
	// logical worker has several micro-batches.
	FullGradient int64 `json:"full_gradient,omitempty"`
	// Gathered is the weights of the units that are gathered at once, stage 3.
	Gathered int64 `json:"gathered,omitempty"`
	// State is the peak of the above together in use, at most their sum. What
	// passes borrow lies in buffers as long as the longest unit, which are kept:
	// Total has these in full.
	State int64 `json:"state"`
	// Buffers counts those for a micro-batch's activations; Activations is their
	// bytes. A chunk takes one when it begins to receive a micro-batch's input and
	// keeps it for later ones, so they may be more than are live at once
	// (Schedule.Live).
	Buffers     int   `json:"buffers"`
	Activations int64 `json:"activations"`
	// Work is tables, scratch, and buffers of messages between passes.
	Work int64 `json:"work"`
	// Evidence is the weights before a step, kept where their changes are recorded.
	Evidence int64 `json:"evidence,omitempty"`
	// TiedGradient is the message with which the last stage's part of a tied
	// embedding comes, after the passes: in memory that they borrowed, if any.
	TiedGradient int64 `json:"tied_gradient,omitempty"`
	Total        int64 `json:"total"`
}

// levels is the number of buffers of the counter over a rank's workers.
func (b *builder) levels() int64 { return int64(shard.Levels(b.report.Workers / b.dims.DP)) }

// memory adds up what data-parallel rank dp of the chunks' group holds.
func (b *builder) memory(dp int, chunks []chunk) Memory {
	var m Memory
	var most transient
	for i := range chunks {
		c := &chunks[i]
		b.addState(&m, dp, c)
		most = most.max(c.transient)
		m.Buffers += c.live.acts
		m.Activations += elementBytes * int64(c.live.acts) * int64(c.acts)
		edge := b.seqs * b.cfg.Model.SeqLen * b.cfg.Model.Hidden
		m.Work += elementBytes * (int64(c.fixed) + int64(c.live.edges)*int64(edge) + b.levels())
	}
	kept := m.Weights + m.Gradients + m.Moments + m.FullGradient
	m.Gathered = elementBytes * int64(most.weights)
	m.FullGradient += elementBytes * int64(most.grads)
	m.State = kept + elementBytes*int64(most.both)
	m.TiedGradient = b.tiedBuffer(dp, chunks)
	lent := elementBytes * int64(most.loans) * int64(most.longest)
	m.Total = kept + max(lent, m.TiedGradient) + m.Activations + m.Work + m.Evidence
	return m
}

// addState adds what the chunk holds between passes.
func (b *builder) addState(m *Memory, dp int, c *chunk) {
	h := parallel.Hold(c.buckets, &c.layout, b.cfg.Plan.Zero, dp)
	m.Weights += elementBytes * int64(h.Weights)
	m.Gradients += elementBytes * int64(h.Grads) * b.levels()
	m.Moments += elementBytes * int64(h.Moments) * int64(b.moments)
	if b.cfg.Recording.Digests {
		m.Evidence += elementBytes * int64(h.Moments)
	}
	if parallel.WholeGradient(b.cfg.Plan, b.cfg.Model) {
		m.FullGradient += elementBytes * int64(c.layout.Grads)
	}
}

// tiedBuffer is the bytes of the buffer into which the first stage receives the
// head's gradient of a tied embedding from the last.
func (b *builder) tiedBuffer(dp int, chunks []chunk) int64 {
	first := &chunks[0]
	if !b.cfg.Model.Tied || b.dims.PP == 1 || !first.layout.Part.First {
		return 0
	}
	most := 0
	for _, n := range b.tiedGradients(dp, first) {
		most = max(most, n)
	}
	return elementBytes * int64(most)
}

// transient is what a micro-batch's passes hold beyond what is kept, at most, in
// elements, and how often each unit is gathered for them.
type transient struct {
	weights, grads, both int
	loans, longest       int   // buffers lent at once, and the length that all have
	gathers              []int // by unit
}

// max keeps the larger peaks: passes of different chunks do not overlap.
func (p transient) max(o transient) transient {
	return transient{weights: max(p.weights, o.weights), grads: max(p.grads, o.grads), both: max(p.both, o.both),
		loans: max(p.loans, o.loans), longest: max(p.longest, o.longest)}
}

// walk follows the passes of a micro-batch.
type walk struct {
	transient
	layout                 *model.Layout
	uses                   []int // by unit: begun and not ended
	here                   []bool
	liveWeights, liveGrads int
	lent                   int
}

// walkPasses follows one forward and one backward pass. With gather, a unit's
// weights exist from the use of the unit before it in the pass (it is fetched
// ahead) to the end of its own; with unitGrads, its gradient during its backward
// pass.
func walkPasses(l *model.Layout, gather, unitGrads bool) transient {
	w := walk{layout: l, uses: make([]int, len(l.Units)), here: make([]bool, len(l.Units))}
	w.gathers = make([]int, len(l.Units))
	for _, ph := range []model.Phase{model.Forward, model.Backward} {
		order, grads := l.Order(ph), unitGrads && ph == model.Backward
		for i, u := range order {
			if gather {
				w.uses[l.Source(u)]++
				w.fetch(order[i:min(i+2, len(order))])
			}
			if grads {
				w.liveGrads += w.borrow(u)
			}
			w.weights, w.grads = max(w.weights, w.liveWeights), max(w.grads, w.liveGrads)
			w.both, w.loans = max(w.both, w.liveWeights+w.liveGrads), max(w.loans, w.lent)
			if i+1 < len(order) && l.Units[order[i+1]].Name == model.HeadUnit {
				continue // the head's use lies within this one
			}
			w.end(u, gather, grads)
			if l.Units[u].Name == model.HeadUnit {
				w.end(order[i-1], gather, grads)
			}
		}
	}
	return w.transient
}

// fetch gathers the units whose weights some units read, unless they are here.
func (w *walk) fetch(units []int) {
	for _, u := range units {
		if u = w.layout.Source(u); !w.here[u] {
			w.here[u] = true
			w.gathers[u]++
			w.liveWeights += w.borrow(u)
		}
	}
}

// end ends the use of a unit.
func (w *walk) end(u int, gather, grads bool) {
	if src := w.layout.Source(u); gather {
		if w.uses[src]--; w.uses[src] == 0 {
			w.here[src] = false
			w.liveWeights -= w.giveBack(src)
		}
	}
	if grads {
		w.liveGrads -= w.giveBack(u)
	}
}

// borrow and giveBack count a buffer that the unit's weights or gradient take.
func (w *walk) borrow(u int) int {
	n := w.layout.Units[u].Len()
	w.lent++
	w.longest = max(w.longest, n)
	return n
}

func (w *walk) giveBack(u int) int {
	w.lent--
	return w.layout.Units[u].Len()
}
