package tp

import (
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/core/trace"
)

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
	all := c.Test.Copies(c.Held[name], -1, trace.Weight, 0)
	p.Expect(c.Expected(trace.Weight, name))
	p.Saw(len(all))
	for _, x := range all {
		first, last := x.At.TP*m.Heads/size, (x.At.TP+1)*m.Heads/size-1
		heads := shard.Range{Lo: first * m.KVHeads / m.Heads, Hi: last*m.KVHeads/m.Heads + 1}
		width := int64(x.Param.Rows*x.Param.Cols) / int64(m.KVHeads)
		if want := int64(heads.Len()) * width; x.Event.Count != want {
			p.At(x.Rank, -1).Of(name).Report(x.Event.Count, want,
				"rank %d holds other KV heads than [%d,%d) of %d", x.Rank, heads.Lo, heads.Hi, m.KVHeads)
		}
	}
}
