package zero

import (
	"fmt"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// usage is live bytes of one purpose: when a step ends, and the most within it.
type usage struct{ end, peak uint64 }

// living is clause 5: live bytes stay at the stage's formula.
func living(p *contract.Pass, r *evidence.Run) {
	for rank := range r.Header.World {
		want := memory(r, rank)
		p.Expect(r.Config.Steps * len(want))
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
		for step := range r.Config.Steps {
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
