package tp

import (
	"fmt"
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// shards is clause 3.
func shards(p *contract.Pass, c *compare.Comparison) {
	c.Test.Apart(p)
	for _, t := range c.Test.Params {
		tiled(p, c, t.Name)
	}
	if vocabParallel(c.Test) && c.Test.Config.Plan.Zero < 3 { // of stage 3 the sum of the shares is judged
		vocabulary(p, c)
	}
	refusals(p, c.Test)
	c.States(nil)
}

// tiled checks that the plan's slices of a parameter are contiguous, disjoint
// and cover it.
func tiled(p *contract.Pass, c *compare.Comparison, name string) {
	p.Count(1, 1)
	var parts []evidence.Copy
	for _, h := range c.Held[name] {
		parts = append(parts, evidence.Copy{Holding: h})
	}
	row, col := 0, 0 // where the next slice must begin
	for _, g := range evidence.BySlice(parts) {
		q := g[0].Param
		if q.R.Lo > row || q.C.Lo > col || q.R.Lo != row && q.C.Lo != col {
			row = -1
			break
		}
		row, col = q.R.Hi, q.C.Hi
	}
	if len(parts) == 0 || row != parts[0].Param.Rows || col != parts[0].Param.Cols {
		p.At(-1, -1).Of(name).Report(nil, nil, "the slices of the plan do not tile the parameter")
	}
}

// vocabulary checks that rows of the embedding are cut by the shard rule over
// tensor groups.
func vocabulary(p *contract.Pass, c *compare.Comparison) {
	m := c.Test.Config.Model
	per := m.Groups.Tensor / c.Test.Config.Plan.TP
	for _, h := range c.Held[model.EmbedName] {
		lo := shard.Part{Index: h.At.TP * per, Size: m.Groups.Tensor}.Of(m.Vocab).Lo
		hi := shard.Part{Index: (h.At.TP+1)*per - 1, Size: m.Groups.Tensor}.Of(m.Vocab).Hi
		e, ok := c.Test.Digest(h.Rank, c.Test.First-1, trace.Weight, model.EmbedName, 0)
		contract.Compare(p.At(h.Rank, c.Test.First-1).Of(model.EmbedName), ok, e.Count, int64(hi-lo)*int64(m.Hidden),
			"rank %d holds another part of the vocabulary than rows [%d,%d)", h.Rank, lo, hi)
	}
}

// refusals checks that sizes which cannot be cut are refused, and that an uneven
// vocabulary is not.
func refusals(p *contract.Pass, r *evidence.Run) {
	g := r.Config.Model.Groups.Tensor
	for _, bad := range []struct {
		what   string
		change func(*model.Config, *int)
		fits   bool
	}{
		{"heads", func(c *model.Config, _ *int) { c.Heads, c.KVHeads = g+1, 1 }, false},
		{"intermediate size", func(c *model.Config, _ *int) { c.Intermediate = g + 1 }, false},
		{"KV heads", func(c *model.Config, _ *int) { c.Heads, c.KVHeads = 3*g, 3 }, false},
		{"ranks", func(_ *model.Config, tp *int) { *tp = 3 }, false},
		{"more ranks than groups", func(_ *model.Config, tp *int) { *tp = 2 * g }, false},
		{"vocabulary", func(c *model.Config, _ *int) { c.Vocab = 8*g + 1 }, true},
	} {
		c, plan := r.Config.Model, r.Config.Plan
		bad.change(&c, &plan.TP)
		err := c.Validate()
		if err == nil {
			err = plan.Validate(c, r.Config.Sequences)
		}
		if p.Count(1, 1); (err == nil) != bad.fits {
			p.At(-1, -1).Report(fmt.Sprint(err), nil, "sizes planted in %s: accepted is %v, want %v", bad.what, err == nil, bad.fits)
		}
	}
}

// replicated is clause 5: parameters that every rank holds whole.
func replicated(_ *contract.Pass, c *compare.Comparison) {
	whole := func(name string) bool { return !c.Split(name) }
	c.Gradients(whole)
	c.Scalars(c.LastStage, trace.Loss)
	c.States(whole)
	c.Scalars(nil, trace.Norm, trace.Coef, trace.LR, trace.Counter)
}

// isKV selects the parameters of keys and values.
func isKV(name string) bool {
	return strings.Contains(name, ".k_proj.") || strings.Contains(name, ".v_proj.")
}

// kvHeads is clause 6.
func (m *match) kvHeads() {
	for _, t := range evidence.Named(m.Test.Params, isKV) {
		copies(m.p, m.Comparison, t.Name)
	}
	m.compare(m.blocks(trace.Forward, "k", "v"))
	m.Gradients(isKV)
	for rank := range m.Test.Header.World {
		reduced(m.p, m.Test, rank, names.KV, kvRanks(m.Test, rank))
	}
}

// copies checks that each rank holds the heads of a KV parameter that its query
// heads attend to: query head h attends to KV head h*kv/heads, so there are
// copies of one head where there are fewer of them than ranks.
func copies(p *contract.Pass, c *compare.Comparison, name string) {
	m, size := c.Test.Config.Model, c.Test.Config.Plan.TP
	all := c.Test.Copies(c.Held[name], c.Test.First-1, trace.Weight, 0)
	p.Expect(c.Expected(trace.Weight, name))
	p.Saw(len(all))
	for _, x := range all {
		first, last := x.At.TP*m.Heads/size, (x.At.TP+1)*m.Heads/size-1
		heads := shard.Range{Lo: first * m.KVHeads / m.Heads, Hi: last*m.KVHeads/m.Heads + 1}
		width := int64(x.Param.Rows*x.Param.Cols) / int64(m.KVHeads)
		if want := int64(heads.Len()) * width; x.Event.Count != want {
			p.At(x.Rank, c.Test.First-1).Of(name).Report(x.Event.Count, want,
				"rank %d holds other KV heads than [%d,%d) of %d", x.Rank, heads.Lo, heads.Hi, m.KVHeads)
		}
	}
}
