package suite

import (
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// Foreign reports whether plans were asked for of which none is canonical: a
// contract that is about these alone has no case for them.
func Foreign(o Options) bool {
	plans, _ := Plans(o.Plans) // the options were checked
	return len(plans) > 0 && !slices.ContainsFunc(plans, compare.Canonical)
}

// Exact lists those of the plans that fit a configuration and promise it the
// single worker's bits.
func Exact(cfg spec.Config, plans []string) []plan.Plan {
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
