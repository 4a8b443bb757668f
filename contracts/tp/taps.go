package tp

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// tap is an activation, or the gradient of one, of one micro-batch. place
// counts the micro-batches of a logical worker.
type tap struct {
	step, worker, place int
	what, unit, name    string
}

// taps collects a run's taps, ranks ascending.
func taps(r *evidence.Run) map[tap][]trace.Event {
	out := map[tap][]trace.Event{}
	for e := range r.All {
		if e.Kind != trace.KindTap || e.Digest == nil {
			continue
		}
		if w, place, ok := r.WorkerOf(r.At(e.Rank).DP, e.Micro); ok {
			k := tap{e.Step, w, place, e.What, e.Unit, e.Tensor}
			out[k] = append(out[k], e)
		}
	}
	return out
}

// match is a comparison with the taps of both runs.
type match struct {
	*compare.Comparison
	p           *contract.Pass
	test, dense map[tap][]trace.Event
}

// withTaps is a check of both runs with their taps. The pass doubts where they
// are of other micro-batches than the control's.
func withTaps(check func(*match)) func(*contract.Pass) {
	return subject.WithPart(func(p *contract.Pass, c *compare.Comparison) {
		for _, r := range []*evidence.Run{c.Test, c.Control} {
			if !r.Config.Recording.Taps {
				p.Doubt("the %s run has no activations: record it with evidence.taps", r.Config.Plan)
				return
			}
		}
		if a, b := c.Test.PerWorker(), c.Control.PerWorker(); a != b {
			p.Doubt("a logical worker has %d micro-batches, in the control run %d: activations cannot be compared", a, b)
			return
		}
		check(&match{c, p, taps(c.Test), taps(c.Control)})
	})
}

// tapped is what is tapped in a unit, in one direction.
type tapped struct {
	unit, what string
	names      []string
}

// blocks taps every block, in the order of the pass.
func (m *match) blocks(what string, names ...string) []tapped {
	var out []tapped
	for l := range m.Test.Config.Model.Layers {
		out = append(out, tapped{model.BlockUnit(l), what, names})
	}
	if what == trace.Backward {
		slices.Reverse(out)
	}
	return out
}

// columns is clause 1.
func (m *match) columns() {
	logits := tapped{headUnit(m.Test), trace.Forward, []string{"logits"}}
	m.compare(append(m.blocks(trace.Forward, "q", "k", "v", "gate", "up"), logits))
}

// rows is clause 2.
func (m *match) rows() {
	embed := tapped{model.EmbedUnit, trace.Forward, []string{"embed"}}
	m.compare(append([]tapped{embed}, m.blocks(trace.Forward, "attn", "mlp")...))
	m.Scalars(m.LastStage, trace.Loss)
}

// backward is clause 4.
func (m *match) backward() {
	m.compare(m.blocks(trace.Backward, "dmlp", "dattn"))
	m.Gradients(m.Split)
}

// compare judges taps of every micro-batch, in the steps in which they must be
// equal.
func (m *match) compare(units []tapped) {
	for step := m.Test.First; step < m.Equal; step++ {
		for w := range m.Test.Workers {
			for place := range m.Test.PerWorker() {
				for _, u := range units {
					for _, name := range u.names {
						m.one(tap{step, w, place, u.what, u.unit, name})
					}
				}
			}
		}
	}
}

// dense is the rank of a tap of the control in a comparison.
const dense = -1

// one judges one activation: the slices of the tensor-parallel ranks against the
// dense one, or, where that cannot be, copies of a slice against the first.
func (m *match) one(k tap) {
	tp := m.Test.Config.Plan.TP
	m.p.Expect(tp)
	got, whole := m.test[k], m.dense[k]
	if len(whole) != 1 {
		return
	}
	m.p.Saw(min(tp, len(got)))
	evidence.Lost(m.p, k.step, k.name, whole[0])
	want, columns, reported := whole[0], byColumns(got), false
	want.Rank = dense
	for _, e := range got {
		if e.Count != 0 && want.Count != 0 && e.Count != want.Count {
			reported = true
			m.report(k, e, want, fmt.Sprintf("rank %d has columns of %d, the dense ones are %d", e.Rank, e.Count, want.Count))
		}
	}
	for _, copies := range columns {
		ref := want
		if copies[0].Lo != want.Lo || copies[0].Hi != want.Hi {
			ref, copies = copies[0], copies[1:]
		}
		for _, e := range copies {
			if *e.Digest != *ref.Digest {
				reported = true
				m.report(k, e, ref,
					fmt.Sprintf("columns [%d,%d) on rank %d differ from those of the dense model or of a copy", e.Lo, e.Hi, e.Rank))
			}
		}
	}
	if len(got) < tp || reported {
		return
	}
	if sum, gap := together(columns, want.Hi); gap != "" {
		m.report(k, trace.Event{Rank: -1}, want, gap)
	} else if sum != *want.Digest {
		m.report(k, trace.Event{Rank: -1, Digest: &sum}, want, "the columns of all ranks together are not the dense ones")
	}
}

// report adds a finding about a tap. That a slice is not the dense one says nothing of
// which is wrong; copies of one slice must be equal.
func (m *match) report(k tap, got, want trace.Event, message string) {
	phase, order := m.Test.Moment(trace.Event{Kind: trace.KindTap, Step: k.step, What: k.what, Unit: k.unit})
	at := m.p.At(got.Rank, k.step).Of(k.unit+" "+k.name).In(phase, order)
	if want.Rank == dense {
		at = at.Against(contract.Control)
	}
	var found any
	if got.Digest != nil {
		found = *got.Digest
	}
	at.Report(found, *want.Digest,
		"%s %s of %s, logical worker %d, micro-batch %d: %s", k.what, k.name, k.unit, k.worker, k.place, message)
}

// byColumns groups taps by their columns, ascending.
func byColumns(all []trace.Event) [][]trace.Event {
	return evidence.Grouped(all, func(a, b trace.Event) int { return cmp.Or(cmp.Compare(a.Lo, b.Lo), cmp.Compare(a.Hi, b.Hi)) })
}

// together adds up one copy of each slice, as byColumns groups them. gap says
// where the columns, up to end, are missing or doubled; "" if nowhere.
func together(groups [][]trace.Event, end int64) (sum kernels.Digest, gap string) {
	at := int64(0)
	for _, g := range groups {
		if g[0].Lo != at {
			return sum, fmt.Sprintf("columns [%d,%d) follow column %d", g[0].Lo, g[0].Hi, at)
		}
		at = g[0].Hi
		sum.Add(*g[0].Digest)
	}
	if at != end {
		return sum, fmt.Sprintf("the ranks have %d of %d columns", at, end)
	}
	return sum, ""
}

// vocabParallel reports whether the plan splits embedding and head.
func vocabParallel(r *evidence.Run) bool { return r.Config.Plan.Vocab == plan.VocabParallel }

// headUnit is the unit that computes the logits.
func headUnit(r *evidence.Run) string {
	if r.Config.Model.Tied {
		return model.HeadUnit
	}
	return model.FinalUnit
}
