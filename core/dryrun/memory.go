package dryrun

import (
	"math/bits"

	"github.com/lockstep-ml/lockstep/core/model"
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
	// Live is the micro-batches whose activations are held at once, Activations
	// their buffers, which are kept for the next ones.
	Live        int   `json:"live"`
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
func (b *builder) levels() int64 {
	return int64(bits.Len(uint(b.report.Workers / b.dims.DP)))
}

// unitGradients reports whether full gradients live only unit by unit.
func (b *builder) unitGradients() bool {
	return b.cfg.Plan.Zero >= 2 && b.cfg.Plan.MicroBatches == b.report.Workers/b.dims.DP
}

// memory adds up what data-parallel rank dp of the chunks' group holds.
func (b *builder) memory(dp int, chunks []chunk) Memory {
	var m Memory
	var most passes
	for i := range chunks {
		c := &chunks[i]
		b.addState(&m, dp, c)
		most = most.max(c.passes)
		m.Live += c.live.acts
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
	zero := b.cfg.Plan.Zero
	var shards, owned, weights int
	for i := range c.segs {
		s := &c.segs[i]
		if s.Bounds == nil {
			owned += s.Len()
			continue
		}
		own := s.Own(dp).Len()
		shards += own
		if !s.Source {
			owned += own
		}
		if s.Hi <= c.layout.Weights {
			weights += own
		}
	}
	if zero < 3 {
		weights = c.layout.Weights
	}
	grads := shards
	if zero < 2 {
		grads = c.layout.Grads
	}
	m.Weights += elementBytes * int64(weights)
	m.Gradients += elementBytes * int64(grads) * b.levels()
	m.Moments += elementBytes * int64(owned) * int64(b.moments)
	if b.cfg.Evidence.Digests {
		m.Evidence += elementBytes * int64(owned)
	}
	if zero >= 2 && !b.unitGradients() {
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

// passes is what a micro-batch's passes hold beyond what is kept, at most, in
// elements, and how often each unit is gathered for them.
type passes struct {
	weights, grads, both int
	loans, longest       int   // buffers lent at once, and the length that all have
	gathers              []int // by unit
}

// max keeps the larger peaks: passes of different chunks do not overlap.
func (p passes) max(o passes) passes {
	return passes{weights: max(p.weights, o.weights), grads: max(p.grads, o.grads), both: max(p.both, o.both),
		loans: max(p.loans, o.loans), longest: max(p.longest, o.longest)}
}

// notice is a pass announcing a unit, before or after its use.
type notice struct {
	unit   int
	before bool
}

// notices lists what a pass announces, in order. The tied head lies within the
// final norm's unit.
func notices(l *model.Layout, ph model.Phase) []notice {
	inner := len(l.Units)
	var end []notice
	if l.Part.Last {
		inner--
		end = []notice{{inner, true}, {inner, false}}
		if l.Units[inner].Name == model.HeadUnit {
			inner--
			end = []notice{{inner, true}, {inner + 1, true}, {inner + 1, false}, {inner, false}}
		}
	}
	var out []notice
	if ph == model.Backward {
		out = end
		for u := inner - 1; u >= 0; u-- {
			out = append(out, notice{u, true}, notice{u, false})
		}
		return out
	}
	for u := range inner {
		out = append(out, notice{u, true}, notice{u, false})
	}
	return append(out, end...)
}

// walkPasses follows one forward and one backward pass. With gather, a unit's
// weights exist from the use of the unit before it in the pass (it is fetched
// ahead) to the end of its own; with unitGrads, its gradient during its backward
// pass.
func walkPasses(l *model.Layout, gather, unitGrads bool) passes {
	w := walk{layout: l, uses: make([]int, len(l.Units)), here: make([]bool, len(l.Units))}
	w.gathers = make([]int, len(l.Units))
	for _, ph := range []model.Phase{model.Forward, model.Backward} {
		list := notices(l, ph)
		for i, n := range list {
			if gather {
				w.gather(list, i)
			}
			if unitGrads && ph == model.Backward {
				w.gradient(n)
			}
			w.weights, w.grads = max(w.weights, w.liveWeights), max(w.grads, w.liveGrads)
			w.both = max(w.both, w.liveWeights+w.liveGrads)
			w.loans = max(w.loans, w.lent)
		}
	}
	return w.passes
}

// walk is the state of walkPasses.
type walk struct {
	passes
	layout                 *model.Layout
	uses                   []int
	here                   []bool
	liveWeights, liveGrads int
	lent                   int
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

// source is the unit whose weights unit u reads.
func (w *walk) source(u int) int {
	if w.layout.Units[u].Hi > w.layout.Weights {
		return 0
	}
	return u
}

func (w *walk) fetch(u int) {
	if !w.here[u] {
		w.here[u] = true
		w.gathers[u]++
		w.liveWeights += w.borrow(u)
	}
}

func (w *walk) gather(list []notice, i int) {
	u := w.source(list[i].unit)
	if !list[i].before {
		if w.uses[u]--; w.uses[u] == 0 {
			w.here[u] = false
			w.liveWeights -= w.giveBack(u)
		}
		return
	}
	w.uses[u]++
	w.fetch(u)
	for _, n := range list[i+1:] {
		if n.before {
			w.fetch(w.source(n.unit))
			return
		}
	}
}

func (w *walk) gradient(n notice) {
	if n.before {
		w.liveGrads += w.borrow(n.unit)
	} else {
		w.liveGrads -= w.giveBack(n.unit)
	}
}
