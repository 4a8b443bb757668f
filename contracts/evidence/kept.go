package evidence

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// levels is the number of gradient buffers over a rank's logical workers.
func (r *Run) levels() int { return bits.Len(uint(r.Workers / r.Config.Plan.DP)) }

// bufferNames lists the buffers of a part's state.
func (r *Run) bufferNames() []string {
	out := []string{trace.Weight}
	for i := range r.levels() {
		out = append(out, fmt.Sprintf("grad.%d", i))
	}
	for i := range r.Moments() {
		out = append(out, fmt.Sprintf("moment.%d", i))
	}
	return out
}

// kindOf is what a buffer holds, as memory is named.
func kindOf(buffer string) string {
	switch name, _, _ := strings.Cut(buffer, "."); name {
	case "grad":
		return names.MemGrads
	case "moment":
		return names.MemMoments
	}
	return names.MemWeights
}

// sizes are the elements of the buffers of a part that is not shared out.
func sizes(l model.Layout) map[string]int {
	return map[string]int{names.MemWeights: l.Weights, names.MemGrads: l.Grads, names.MemMoments: l.Owned}
}

// allocated holds the memory that a rank counted against its layouts, where its state is
// not shared out, and the purposes against each other. What a rank holds beside the state
// has no formula here.
func (r *Run) allocated(rank int) string {
	if !r.some(rank, trace.KindMemory) {
		return ""
	}
	want := r.stateBytes(rank)
	for step := r.First; step < r.Steps; step++ {
		found := map[string]trace.Event{}
		for e := range r.In(step, rank, trace.KindMemory) {
			if _, twice := found[e.What]; twice {
				return fmt.Sprintf("rank %d counted its memory for %s twice in step %d", rank, e.What, step)
			}
			found[e.What] = e
			if e.Count > e.Bytes || e.Count%bitsBytes != 0 || e.Bytes%bitsBytes != 0 {
				return fmt.Sprintf("rank %d counted %d bytes of %s at the end of step %d, at most %d in it", rank, e.Count, e.What, step, e.Bytes)
			}
			if n := want[e.What]; r.Config.Plan.Zero == 0 && n > 0 && (e.Count != n || e.Bytes != n) {
				return fmt.Sprintf("rank %d counted %d bytes of %s at the end of step %d, at most %d in it: its parts of the model have %d", rank, e.Count, e.What, step, e.Bytes, n)
			}
		}
		if !r.finished(rank, step) {
			continue
		}
		for _, what := range purposes {
			if _, ok := found[what]; !ok {
				return fmt.Sprintf("rank %d did not count its memory for %s in step %d", rank, what, step)
			}
		}
		if sum := found[names.MemWeights].Count + found[names.MemGrads].Count + found[names.MemMoments].Count; sum != found[names.MemState].Count {
			return fmt.Sprintf("rank %d counted %d bytes of state in step %d, %d of its three kinds", rank, found[names.MemState].Count, step, sum)
		}
	}
	return ""
}

// purposes are what every rank needs memory for.
var purposes = []string{names.MemWeights, names.MemGrads, names.MemMoments, names.MemState, names.MemActivations, names.MemOther}

// stateBytes is the bytes of a rank's state that is not shared out, of each kind and of all.
func (r *Run) stateBytes(rank int) map[string]int64 {
	out := map[string]int64{}
	for _, l := range r.Layouts(rank) {
		for what, n := range sizes(l) {
			times := map[string]int{names.MemWeights: 1, names.MemGrads: r.levels(), names.MemMoments: len(r.Moments())}[what]
			out[what] += int64(bitsBytes * n * times)
			out[names.MemState] += int64(bitsBytes * n * times)
		}
	}
	return out
}

// countedTwice says of which scalar or change, of those whose copies are marked to count
// once, not one copy of everything is.
func (r *Run) countedTwice() string {
	marks, marked := map[about][]int{}, false // of scalars the ranks marked
	for k, e := range r.scalars {
		k.rank = 0
		if marks[k] = marks[k]; e.Once {
			marks[k], marked = append(marks[k], e.Rank), true
		}
	}
	for k, ranks := range marks {
		if marked && len(ranks) != 1 && k.step < r.Steps && len(r.Ranks) == r.Header.World && r.finished(r.Header.World-1, k.step) {
			return fmt.Sprintf("of the %s of step %d the copies of ranks %v count, not that of one rank", k.what, k.step, ranks)
		}
	}
	if !r.counts {
		return ""
	}
	for k, e := range r.changed {
		state := r.Moments()[0]
		if k.what == string(trace.KindUnmoved) {
			state = trace.Weight
		}
		d, ok := r.Digest(k.rank, k.step, state, k.tensor, 0)
		if ok && d.Once != e.Once {
			return fmt.Sprintf("the %s event of rank %d for %s in step %d counts: %v; its %s counts: %v", k.what, k.rank, k.tensor, k.step, e.Once, state, d.Once)
		}
	}
	return r.workersOnce()
}

// workersOnce says of which logical worker's gradient not every element counts once,
// although all of them are recorded.
func (r *Run) workersOnce() string {
	held := r.Held()
	for step := r.First; step < r.Steps; step++ {
		for w := range r.Graded() {
			for _, t := range r.Params { // a tied head counts as the embedding
				sum, _ := r.Logical(step, trace.WorkerGrad, t.Name, w)
				if sum.Count == t.Len {
					continue
				}
				if all := Whole(BySlice(r.Copies(held[t.Name], step, trace.WorkerGrad, w))); all.Count == t.Len {
					return fmt.Sprintf("%d elements of logical worker %d's gradient of %s in step %d count, of %d that are recorded", sum.Count, w, t.Name, step, t.Len)
				}
			}
		}
	}
	return ""
}
