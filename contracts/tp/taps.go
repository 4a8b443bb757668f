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
		if w, place, ok := microBatch(r, r.At(e.Rank).DP, e.Micro); ok {
			k := tap{e.Step, w, place, e.What, e.Unit, e.Tensor}
			out[k] = append(out[k], e)
		}
	}
	return out
}

// microBatch is the logical worker of a data-parallel rank's micro-batch, and
// its place among the worker's.
func microBatch(r *evidence.Run, dp, micro int) (worker, place int, ok bool) {
	workers := r.Config.Plan.RankWorkers(r.Config.Model, dp)
	per := perWorker(r)
	if micro < 0 || micro >= per*len(workers) {
		return 0, 0, false
	}
	return workers[micro/per], micro % per, true
}

// perWorker is the number of micro-batches that a logical worker's sequences are
// cut into.
func perWorker(r *evidence.Run) int {
	return r.Config.Plan.MicroBatches / (r.Workers / r.Config.Plan.DP)
}

// matched opens the runs and their taps. The pass doubts where the taps are of
// other micro-batches than the control's.
func matched(p *contract.Pass) (m *match, ok bool) {
	c, ok := subject.Part(p)
	if !ok {
		return nil, false
	}
	for _, r := range []*evidence.Run{c.Test, c.Control} {
		if !r.Config.Evidence.Taps {
			p.Doubt("the %s run has no activations: record it with evidence.taps", r.Config.Plan)
			return nil, false
		}
	}
	if a, b := perWorker(c.Test), perWorker(c.Control); a != b {
		p.Doubt("a logical worker has %d micro-batches, in the control run %d: activations cannot be compared", a, b)
		return nil, false
	}
	return &match{c, p, taps(c.Test), taps(c.Control)}, true
}

// match is a comparison with the taps of both runs.
type match struct {
	*compare.Comparison
	p           *contract.Pass
	test, dense map[tap][]trace.Event
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
func columns(p *contract.Pass) {
	m, ok := matched(p)
	if !ok {
		return
	}
	logits := model.FinalUnit
	if m.Test.Config.Model.Tied {
		logits = model.HeadUnit
	}
	m.compare(append(m.blocks(trace.Forward, "q", "k", "v", "gate", "up"), tapped{logits, trace.Forward, []string{"logits"}}))
}

// rows is clause 2.
func rows(p *contract.Pass) {
	m, ok := matched(p)
	if !ok {
		return
	}
	embed := tapped{model.EmbedUnit, trace.Forward, []string{"embed"}}
	m.compare(append([]tapped{embed}, m.blocks(trace.Forward, "attn", "mlp")...))
	m.Scalars(m.LastStage, trace.Loss)
}

// backward is clause 4.
func backward(p *contract.Pass) {
	m, ok := matched(p)
	if !ok {
		return
	}
	m.compare(m.blocks(trace.Backward, "dmlp", "dattn"))
	m.Gradients(m.Split)
}

// compare judges taps of every micro-batch, in the steps in which they must be
// equal.
func (m *match) compare(units []tapped) {
	for step := range m.Equal {
		for w := range m.Test.Workers {
			for place := range perWorker(m.Test) {
				for _, u := range units {
					for _, name := range u.names {
						m.one(tap{step, w, place, u.what, u.unit, name})
					}
				}
			}
		}
	}
}

// one judges one activation: the slices of the tensor-parallel ranks against the
// dense one.
func (m *match) one(k tap) {
	tp := m.Test.Config.Plan.TP
	m.p.Expect(tp)
	got, dense := m.test[k], m.dense[k]
	if len(dense) != 1 {
		return
	}
	m.p.Saw(min(tp, len(got)))
	want, slices := dense[0], byColumns(got)
	reported := false
	for _, s := range slices {
		if s[0].Lo == want.Lo && s[0].Hi == want.Hi {
			reported = m.judge(k, s, want) || reported
			continue
		}
		reported = m.judge(k, s[1:], s[0]) || reported
	}
	if len(got) < tp || reported {
		return
	}
	if gap := uncovered(slices, want); gap != "" {
		m.report(k, -1, trace.Event{}, want, gap)
	} else if sum := together(slices); sum != *want.Digest {
		m.report(k, -1, trace.Event{Digest: &sum, Count: want.Count}, want, "the columns of all ranks together are not the dense ones")
	}
}

// judge compares copies of the same columns.
func (m *match) judge(k tap, copies []trace.Event, want trace.Event) (reported bool) {
	for _, e := range copies {
		if !sameTap(e, want) {
			reported = true
			m.report(k, e.Rank, e, want, fmt.Sprintf("columns [%d,%d) on rank %d differ from those of the dense model or of a copy", e.Lo, e.Hi, e.Rank))
		}
	}
	return reported
}

// sameTap reports whether two digests are equal and of finite elements.
func sameTap(a, b trace.Event) bool { return *a.Digest == *b.Digest && a.Digest.NonFinite == 0 }

func (m *match) report(k tap, rank int, got, want trace.Event, message string) {
	f := contract.Finding{Rank: rank, Step: k.step, Index: -1, Tensor: k.unit + " " + k.name, Want: want.Digest.String(),
		Message: fmt.Sprintf("%s %s of %s, logical worker %d, micro-batch %d: %s", k.what, k.name, k.unit, k.worker, k.place, message)}
	if got.Digest != nil {
		f.Got = got.Digest.String()
	}
	m.p.Report(f)
}

// byColumns groups taps by their columns, ascending.
func byColumns(all []trace.Event) [][]trace.Event {
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b trace.Event) int {
		return cmp.Or(cmp.Compare(a.Lo, b.Lo), cmp.Compare(a.Hi, b.Hi), cmp.Compare(a.Rank, b.Rank))
	})
	var out [][]trace.Event
	for i, e := range sorted {
		if i == 0 || e.Lo != sorted[i-1].Lo || e.Hi != sorted[i-1].Hi {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], e)
	}
	return out
}

// uncovered says where columns are missing or doubled; "" if nowhere.
func uncovered(groups [][]trace.Event, want trace.Event) string {
	at := int64(0)
	for _, g := range groups {
		if g[0].Lo != at {
			return fmt.Sprintf("columns [%d,%d) follow column %d", g[0].Lo, g[0].Hi, at)
		}
		at = g[0].Hi
	}
	if at != want.Hi {
		return fmt.Sprintf("the ranks have %d of %d columns", at, want.Hi)
	}
	return ""
}

func together(groups [][]trace.Event) kernels.Digest {
	var d kernels.Digest
	for _, g := range groups {
		d.Add(*g[0].Digest)
	}
	return d
}

// vocabParallel reports whether the plan splits embedding and head.
func vocabParallel(r *evidence.Run) bool { return r.Config.Plan.Vocab == plan.VocabParallel }
