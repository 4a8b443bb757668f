package ddp

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/plan"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// leaf is one worker's gradient of one unit in one step.
type leaf struct {
	step, worker int
	unit         string
}

// leaves checks that each worker with sequences enters the sum once on every
// rank that computes it (one per slice of the unit), and no other worker at all.
func leaves(p *contract.Pass, r *evidence.Run) {
	found := map[leaf][]int{} // ranks
	for rank := range r.Header.World {
		for e := range r.Events(rank, trace.KindLeaf) {
			k := leaf{e.Step, e.Worker, e.Unit}
			found[k] = append(found[k], rank)
		}
	}
	holders := r.Holders()
	for step := range r.Config.Steps {
		for _, unit := range slices.Sorted(maps.Keys(holders)) {
			for w := range r.Workers {
				k := leaf{step, w, unit}
				k.check(p, r, holders[unit], found[k])
				delete(found, k)
			}
		}
	}
	alien := slices.SortedFunc(maps.Keys(found), func(a, b leaf) int {
		return cmp.Or(cmp.Compare(a.step, b.step), cmp.Compare(a.worker, b.worker), cmp.Compare(a.unit, b.unit))
	})
	for _, k := range alien {
		p.At(found[k][0], k.step).Report(nil, nil, "a gradient of unit %s and logical worker %d, which the plan does not have, entered the sum", k.unit, k.worker)
	}
}

// check compares the ranks on which a worker's gradient entered the sum with
// those that hold the unit and compute the worker.
func (k leaf) check(p *contract.Pass, r *evidence.Run, holders, ranks []int) {
	var want []int
	for _, rank := range holders {
		if r.Busy(k.worker) && r.At(rank).DP == r.Owner(k.worker) {
			want = append(want, rank)
		}
	}
	p.Expect(len(want))
	for i, rank := range ranks { // ascending
		at := p.At(rank, k.step)
		switch {
		case len(want) == 0:
			at.Report(nil, nil, "a gradient of unit %s of logical worker %d, which has no sequence, entered the sum of rank %d", k.unit, k.worker, rank)
		case !slices.Contains(want, rank):
			at.Report(nil, nil, "the gradient of unit %s of logical worker %d entered the sum of rank %d; the plan gives the worker to rank %d", k.unit, k.worker, rank, want[0])
		case i > 0 && ranks[i-1] == rank:
			at.Report(nil, nil, "the gradient of unit %s of logical worker %d entered the sum of rank %d more than once", k.unit, k.worker, rank)
		default:
			p.Saw(1)
		}
	}
}

// overlap checks that all block reductions of a rank but one were issued before
// its last backward pass of the step ended. A rank whose last worker has no
// sequences computes nothing that could overlap, and stage 1 by elements reduces
// the whole vector once it is complete.
func overlap(p *contract.Pass, r *evidence.Run, rank int) {
	cfg := &r.Config
	walk := cfg.Plan.RankWorkers(cfg.Model, r.At(rank).DP)
	if cfg.Plan.Zero == 1 && cfg.Plan.Shard == plan.ShardFlat || !r.Busy(walk[len(walk)-1]) {
		return
	}
	issued, early, passes := make([]int, cfg.Steps), make([]int, cfg.Steps), make([]int, cfg.Steps)
	for _, e := range r.Ranks[rank] {
		if e.Step < 0 || e.Step >= cfg.Steps {
			continue
		}
		switch {
		case e.Kind == trace.KindPhase && e.What == trace.Backward:
			passes[e.Step]++
			early[e.Step] = issued[e.Step]
		case e.Kind == trace.KindIssue && strings.HasPrefix(e.Unit, blockPrefix):
			issued[e.Step]++
		}
	}
	want := blockReductions(r, rank, len(walk)) - 1
	for step := range cfg.Steps {
		if p.Found(passes[step] > 0 && issued[step] > want) && early[step] < want {
			p.At(rank, step).Report(early[step], fmt.Sprintf("at least %d", want),
				"rank %d issued %d block reductions before its backward pass ended, at least %d can be", rank, early[step], want)
		}
	}
}

// blockReductions is how often a rank issues reductions of blocks in a step.
func blockReductions(r *evidence.Run, rank, workers int) int {
	n := 0
	for _, l := range r.Layouts(rank) {
		n += l.Part.Layers.Len()
	}
	if r.Config.Plan.Zero >= 2 {
		n *= workers // every round of workers
	}
	return n
}

// blockPrefix begins the unit names of blocks.
var blockPrefix = strings.TrimSuffix(model.BlockUnit(0), "0")
