package zero

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/contracts/sharding"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// moved is clause 6: bytes on the wire per step equal the stage's formula.
func moved(p *contract.Pass, r *evidence.Run) {
	for _, group := range r.Groups() {
		want := traffic(r, group[0])
		for step := range r.Config.Steps {
			p.Expect(2)
			sent(p, r, group, step, want)
		}
	}
}

// traffic is what a group sends in a step, by the formulas for its model parts:
// what moves gradients and weights, and the sum of the loss (once per logical
// worker of a rank in stages 2 and 3).
func traffic(r *evidence.Run, rank int) int64 {
	sum := int64(0)
	for _, x := range partsOf(r, rank) {
		sum += x.zero.WireBytes()
		if x.layout.Part.Last {
			times := 1
			if x.zero.Stage >= 2 {
				times = x.zero.Workers / x.zero.DP
			}
			sum += int64(times * 2 * 4 * (x.zero.DP - 1)) // an all-reduce of one element
		}
	}
	return sum
}

// sent compares all bytes that a group sent in a step: those that its operations
// imply, and those that the communicator counted as they moved. A step that some
// rank did not finish, or left no record of, cannot be judged.
func sent(p *contract.Pass, r *evidence.Run, group []int, step int, want int64) {
	implied, counted, silent := parcels{}, parcels{}, false
	for _, rank := range group {
		found := false
		for e := range r.In(step, rank, trace.KindComm) {
			if e.Group == names.DP {
				found = true
				silent = silent || e.Moved < 0 // as recorded of a communicator that does not count
				implied[e.Op] += e.Bytes
				counted[e.Op] += e.Moved
				scattered(p, r, group, e)
			}
		}
		if _, ended := r.Scalar(rank, step, trace.Counter); !found || !ended {
			return
		}
	}
	report := func(what string, got parcels) {
		p.At(group[0], step).Report(got.sum(), want, "%s of ranks %v %d bytes (%s), the formula gives %d", what, group, got.sum(), got, want)
	}
	p.Saw(1)
	if implied.sum() != want {
		report("by the operations", implied)
	}
	moved := counted.sum()
	if silent || moved == 0 && want > 0 {
		p.Doubt("step %d: the communicator of ranks %v did not count the bytes that it moves", step, group)
		return
	}
	p.Saw(1)
	// A star sends what it reduces and scatters to one rank and back.
	if star := r.Config.Plan.Comm == names.Star; moved < want || moved > want && !star {
		report("by the count of what moves", counted)
	}
}

// scattered holds what a rank touched of its peers in a reduce-scatter against its
// shard: an operation with other bounds moves as much in all, and gives the same
// numbers where those between the bounds are 0.
func scattered(p *contract.Pass, r *evidence.Run, group []int, e trace.Event) {
	plan := r.Config.Plan
	if e.Op != names.OpReduceScatter || e.Moved <= 0 || plan.Comm == names.Star || plan.Comm == names.Ring ||
		!sharding.ByElements(plan) || plan.Zero == 1 && e.Unit == model.HeadUnit { // whose shards are those of the vector
		return
	}
	b := shard.Bounds(int(e.Count), len(group))
	i := slices.Index(group, e.Rank)
	if i < 0 {
		return // its communicator is another clause's affair
	}
	if own := int64(b[i+1] - b[i]); e.Moved != 4*own*int64(len(group)-1) {
		p.At(e.Rank, e.Step).Of(e.Unit).Report(e.Moved, 4*own*int64(len(group)-1),
			"the reduce-scatter of %s gave rank %d the sums of other elements than the %d of its shard", e.Unit, e.Rank, own)
	}
}

// parcels are bytes by operation.
type parcels map[string]int64

func (x parcels) sum() (n int64) {
	for _, bytes := range x {
		n += bytes
	}
	return n
}

// String lists the operations that moved bytes.
func (x parcels) String() string {
	var out []string
	for _, op := range slices.Sorted(maps.Keys(x)) {
		if x[op] > 0 {
			out = append(out, fmt.Sprintf("%s %d", op, x[op]))
		}
	}
	return strings.Join(out, ", ")
}
