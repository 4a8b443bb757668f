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

// usage is live bytes of one purpose: when a step ends, and the most within it.
type usage struct{ end, peak uint64 }

// living is clause 5: live bytes stay at the stage's formula.
func living(p *contract.Pass, r *evidence.Run) {
	for rank := range r.Header.World {
		want := memory(r, rank)
		p.Expect(r.Len() * len(want))
		for e := range r.Events(rank, trace.KindMemory) {
			w, known := want[e.What]
			if !known {
				continue
			}
			p.Saw(1)
			bytes(p, e, "when the step ends", e.Count, w.end)
			bytes(p, e, "at the most within the step", e.Bytes, w.peak)
		}
	}
	beside(p, r)
}

// beside holds what a rank has beside the state that the stages shard (tables,
// scratch, exchanges, and whatever else the allocator gave) against the run
// without sharding: a weight that is secretly kept shows here.
func beside(p *contract.Pass, r *evidence.Run) {
	control, ok := evidence.Read(p, contract.Control)
	if !ok {
		return
	}
	for rank := range r.Header.World {
		test, most := others(r, rank), others(control, rank)
		for step := r.First; step < r.Steps; step++ {
			got, ok := test[step]
			want, has := most[step]
			if p.Found(ok && has) && got > want {
				p.At(rank, step).Report(got, fmt.Sprintf("at most %d", want),
					"rank %d holds %d bytes beside weights, gradients and moments when the step ends, %d without sharding", rank, got, want)
			}
		}
	}
}

// others is the live bytes of no named purpose at the end of each step.
func others(r *evidence.Run, rank int) map[int]int64 {
	out := map[int]int64{}
	for e := range r.Events(rank, trace.KindMemory) {
		if e.What == names.MemOther {
			out[e.Step] = e.Count
		}
	}
	return out
}

func bytes(p *contract.Pass, e trace.Event, when string, got int64, want uint64) {
	if uint64(got) != want {
		p.At(e.Rank, e.Step).Report(got, want, "rank %d holds %d bytes of %s %s, the formula gives %d", e.Rank, got, e.What, when, want)
	}
}

// memory is what the formulas give for a rank: the shards of all its model parts
// at rest, and one part at a time in a pass.
func memory(r *evidence.Run, rank int) map[string]usage {
	var weights, grads, moments, state usage
	var gathered, full, passing uint64
	for _, x := range partsOf(r, rank) {
		m := x.zero.Memory(x.place)
		weights.end += m.Weights
		grads.end += m.Gradients
		moments.end += m.Moments
		if x.zero.MicroBatches > 1 { // the full gradient stays
			grads.end += m.FullGradient
			m.Passing -= m.FullGradient
			m.FullGradient = 0
		}
		gathered, full, passing = max(gathered, m.Gathered), max(full, m.FullGradient), max(passing, m.Passing)
	}
	weights.peak, grads.peak, moments.peak = weights.end+gathered, grads.end+full, moments.end
	state.end = weights.end + grads.end + moments.end
	state.peak = state.end + passing
	return map[string]usage{names.MemWeights: weights, names.MemGrads: grads, names.MemMoments: moments, names.MemState: state}
}

// moved is clause 6: bytes on the wire per step equal the stage's formula.
func moved(p *contract.Pass, r *evidence.Run) {
	for _, group := range r.Groups() {
		want := traffic(r, group[0])
		for step := r.First; step < r.Steps; step++ {
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
		if !r.Finished(rank, step) || !found && !r.Told(rank, step, trace.KindComm) {
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
