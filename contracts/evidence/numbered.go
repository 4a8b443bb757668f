package evidence

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// splits are what the world is split into when a run begins, in order.
var splits = []string{string(names.DP), string(names.DP), string(names.PP), string(names.TP), string(names.KV)}

// operations holds the numbers of a rank's operations against each other: those of one
// communicator have numbers from 0 on without a gap, in steps that do not go back. Of a
// communicator that numbers nothing, or of which an operation failed, nothing is known.
func (r *Run) operations(rank int) string {
	calls, failed, made := map[call][]trace.Event{}, map[call]bool{}, 0
	for e := range r.Events(rank, trace.KindComm) {
		if e.Op == names.OpSplit {
			if made >= len(splits) || e.Unit != splits[made] || e.Step != -1 {
				return fmt.Sprintf("rank %d recorded split %d of the world for %q in step %d: a run begins with those for %v", rank, made, e.Unit, e.Step, splits)
			}
			made++
		}
		k := callOf(&e)
		k.seq = 0
		calls[k], failed[k] = append(calls[k], e), failed[k] || e.Text != ""
	}
	if made > 0 && made < len(splits) {
		return fmt.Sprintf("rank %d recorded %d splits of the world, a run begins with %d", rank, made, len(splits))
	}
	for _, k := range slices.SortedFunc(maps.Keys(calls), call.compare) {
		all := calls[k]
		slices.SortStableFunc(all, func(a, b trace.Event) int { return cmp.Compare(a.Seq, b.Seq) })
		if failed[k] || all[len(all)-1].Seq == 0 {
			continue
		}
		for i, e := range all {
			missing := e.Seq != uint64(i)
			if !missing && (i == 0 || e.Step >= all[i-1].Step) {
				continue
			}
			title := fmt.Sprintf("operation %d of group %s of ranks %v (%s of %s) in step %d", e.Seq, e.Group, e.Ranks, e.Op, e.Unit, e.Step)
			if missing {
				return fmt.Sprintf("rank %d recorded %s, and no operation %d", rank, title, i)
			}
			return fmt.Sprintf("rank %d recorded %s, operation %d in step %d", rank, title, i-1, all[i-1].Step)
		}
	}
	return r.agreements(rank)
}

// digestBytes is the size of a digest that replicas exchange; bitsBytes that of an
// element, which they exchange where digests differ.
const (
	digestBytes = 16
	bitsBytes   = 4
)

// agreements holds the sizes of the digests that a rank exchanged with its replicas:
// one for each kind of state that all of them hold.
func (r *Run) agreements(rank int) string {
	differ := r.some(rank, trace.KindDiff)
	for e := range r.Events(rank, trace.KindComm) {
		if e.Op != names.OpAllGatherBytes || e.Unit != names.Agree || e.Text != "" {
			continue
		}
		want := int64(digestBytes * len(r.State()) * len(r.Layouts(rank)))
		switch {
		case r.Config.Plan.Zero == 0 && e.Count == want, r.Config.Plan.Zero > 0 && e.Count%digestBytes == 0:
		case differ && (e.Count == digestBytes || e.Count == bitsBytes):
		default:
			return fmt.Sprintf("rank %d exchanged %d bytes with its replicas in step %d, not the digests of its state (%d)", rank, e.Count, e.Step, want)
		}
	}
	return ""
}
