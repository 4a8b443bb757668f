package pipe

import (
	"cmp"
	"maps"
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// tied is clause 7.
func tied(p *contract.Pass, c *compare.Comparison) {
	moved := exchanges(c.Test)
	if !c.Test.Config.Model.Tied {
		untied(p, c.Test, moved)
		return
	}
	equalCopies(p, c, c.Test.First-1)
	for step := c.Test.First; step < c.Test.Steps; step++ {
		equalCopies(p, c, step)
		for _, ranks := range c.Test.Along(names.PP) {
			first, last := ranks[0], ranks[len(ranks)-1]
			exchanged(p, c.Test, moved, step, names.TiedGradient, last, first)
			exchanged(p, c.Test, moved, step, names.TiedWeight, first, last)
		}
	}
	c.Gradients(func(name string) bool { return name == model.EmbedName || name == model.HeadName })
}

// exchange is one side of an exchange in a step.
type exchange struct {
	step, rank int
	label, op  string
}

// exchanges counts the elements that each side moved, message by message.
func exchanges(r *evidence.Run) map[exchange][]int64 {
	out := map[exchange][]int64{}
	for e := range r.All {
		tied := e.Unit == names.TiedGradient || e.Unit == names.TiedWeight
		if e.Kind == trace.KindComm && e.Group == names.PP && tied && e.Text == "" {
			k := exchange{e.Step, e.Rank, e.Unit, e.Op}
			out[k] = append(out[k], e.Count)
		}
	}
	return out
}

// ended reports whether a rank finished a step and recorded its operations: an
// exchange that is not among them did not happen.
func ended(r *evidence.Run, rank, step int) bool {
	return r.Told(rank, step, trace.KindComm)
}

// exchanged checks one exchange: once, and of the whole slice; where
// data-parallel ranks share the gradient out, what one side sends the other
// receives.
func exchanged(p *contract.Pass, r *evidence.Run, moved map[exchange][]int64, step int, label string, from, to int) {
	sent := moved[exchange{step, from, label, names.OpSend}]
	received := moved[exchange{step, to, label, names.OpRecv}]
	want := []int64{slice(r, from)}
	due := want
	if r.Config.Plan.Zero > 0 {
		due = sent
	}
	check := func(rank int, got []int64) {
		if p.Found(ended(r, rank, step)) && !slices.Equal(got, due) && (r.Config.Plan.Zero == 0 || ended(r, from, step)) {
			phase, order := r.Moment(trace.Event{Kind: trace.KindComm, Step: step, Unit: label})
			p.At(rank, step).Of(model.EmbedName).In(phase, order).Report(got, want,
				"%s from rank %d to rank %d: rank %d moved %v elements of a slice of %d", label, from, to, rank, got, want[0])
		}
	}
	check(from, sent)
	check(to, received)
}

// slice is the number of elements of the embedding at a rank's tensor-parallel
// place.
func slice(r *evidence.Run, rank int) int64 {
	at := r.At(rank)
	at.PP = 0
	l := model.NewLayout(r.Config.Model, r.Config.Plan.Parts(r.Config.Model, at)[0])
	return int64(l.Params[0].Len())
}

// equalCopies compares the last stage's copy of the embedding with the first's,
// whose digests have one identity.
func equalCopies(p *contract.Pass, c *compare.Comparison, step int) {
	heads := c.Test.Copies(c.Held[model.HeadName], step, trace.Weight, 0)
	p.Expect(c.Expected(trace.Weight, model.HeadName))
	for _, e := range c.Test.Copies(c.Held[model.EmbedName], step, trace.Weight, 0) {
		for _, h := range heads {
			if h.At.TP != e.At.TP || h.At.DP != e.At.DP {
				continue
			}
			p.Saw(1)
			if !evidence.Same(h.Event, e.Event) {
				c.Test.Report(p.At(h.Rank, step).Of(model.HeadName), h.Event, e.Event,
					"the head on rank %d is not the embedding on rank %d that it is tied to", h.Rank, e.Rank)
			}
		}
	}
}

// untied checks that nothing is exchanged where nothing is shared.
func untied(p *contract.Pass, r *evidence.Run, moved map[exchange][]int64) {
	for rank := range r.Header.World {
		for step := r.First; step < r.Steps; step++ {
			p.Found(ended(r, rank, step))
		}
	}
	order := func(a, b exchange) int {
		return cmp.Or(cmp.Compare(a.step, b.step), cmp.Compare(a.rank, b.rank), cmp.Compare(a.label, b.label), cmp.Compare(a.op, b.op))
	}
	for _, k := range slices.SortedFunc(maps.Keys(moved), order) {
		p.At(k.rank, k.step).Report(nil, nil,
			"rank %d took part in an exchange (%s) of a model whose head is not tied", k.rank, k.label)
	}
}
