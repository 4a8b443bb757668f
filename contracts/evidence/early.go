package evidence

import (
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// Early lists the reductions of a rank between data-parallel ranks that came before
// the gradient that they reduce was complete: of a unit that is reduced once for each
// logical worker, in stages 2 and 3 of ZeRO, before that worker's gradient entered the
// sum; of any other, before the last one's did. What is not recorded is not early.
func (r *Run) Early(rank int) []Untimely {
	cfg := &r.Config
	var walk []int // the workers with sequences, in their order
	for _, w := range cfg.Plan.RankWorkers(cfg.Model, r.At(rank).DP) {
		if r.Busy(w) {
			walk = append(walk, w)
		}
	}
	type unit struct {
		step int
		name string
	}
	leaves, reductions := map[unit][]int{}, map[unit][]int{} // of a reduction how many leaves came before it
	for _, e := range r.Ranks[rank] {
		k := unit{e.Step, e.Unit}
		switch {
		case e.Kind == trace.KindLeaf:
			leaves[k] = append(leaves[k], e.Worker)
		case e.Kind == trace.KindComm && e.Group == names.DP && (e.Op == names.OpAllReduce || e.Op == names.OpReduceScatter):
			reductions[k] = append(reductions[k], len(leaves[k]))
		}
	}
	var out []Untimely
	for step := r.First; step < r.Steps; step++ {
		for _, name := range r.units {
			k := unit{step, name}
			if len(leaves[k]) != len(walk) {
				continue // more or less than the plan has: another clause's affair
			}
			for i, n := range reductions[k] {
				due := len(walk)
				if len(reductions[k]) >= len(walk) && cfg.Plan.Zero >= 2 {
					due = min(i+1, len(walk)) // workers without sequences come last
				}
				if n < due {
					out = append(out, Untimely{step, leaves[k][n], name})
					break
				}
			}
		}
	}
	return out
}

// Untimely is a logical worker's gradient of a unit that was reduced before it was
// complete.
type Untimely struct {
	Step, Worker int
	Unit         string
}
