package cases

import (
	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/core/train"
)

// Canonical reports whether a plan promises the single worker's bits for models
// with as many logical workers as ranks: a power of two of them, and the tree.
func Canonical(p plan.Plan) bool {
	return shard.IsPowerOfTwo(max(1, p.DP)) && (p.Comm == "" || p.Comm == comm.Tree)
}

// Exact lists those of the plans that fit a configuration and promise it the
// single worker's bits.
func Exact(cfg train.Config, plans []string) []plan.Plan {
	var out []plan.Plan
	for _, s := range plans {
		p, err := plan.Parse(s)
		given := p // Validate fills defaults
		if err == nil && p.Validate(cfg.Model, cfg.Sequences) == nil && p.Exact(cfg.Model) {
			out = append(out, given)
		}
	}
	return out
}
