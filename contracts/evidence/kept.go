package evidence

import (
	"cmp"
	"fmt"
	"maps"
	"math/bits"
	"slices"
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

// buffers holds the buffers of a rank against its layouts: each of the state's, once for
// each part, and as long as it says.
func (r *Run) buffers(rank int) string {
	if !r.some(rank, trace.KindSpan) {
		return ""
	}
	layouts := r.Layouts(rank)
	found := map[string]int{}
	for e := range r.Events(rank, trace.KindSpan) {
		if s := e.Span; s != nil && e.Count > 0 && s.Hi-s.Lo != bitsBytes*uint64(e.Count) {
			return fmt.Sprintf("the %s buffer of rank %d has %d elements in %d bytes", e.What, rank, e.Count, s.Hi-s.Lo)
		}
		if found[e.What]++; e.Step != -1 {
			return fmt.Sprintf("rank %d recorded its %s buffer in step %d, not when it began", rank, e.What, e.Step)
		}
		if r.Config.Plan.Zero == 0 && !slices.ContainsFunc(layouts, func(l model.Layout) bool { return e.Count == int64(sizes(l)[kindOf(e.What)]) }) {
			return fmt.Sprintf("the %s buffer of rank %d has %d elements, no part of the model has as many", e.What, rank, e.Count)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(found)) {
		if !slices.Contains(r.bufferNames(), what) {
			return fmt.Sprintf("rank %d recorded a %s buffer, which the plan does not have", rank, what)
		}
	}
	for _, what := range r.bufferNames() {
		if n := found[what]; n != len(layouts) {
			return fmt.Sprintf("rank %d recorded %d %s buffers, the plan has %d", rank, n, what, len(layouts))
		}
	}
	return ""
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
		if !r.Finished(rank, step) {
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
	if why := r.scalarsOnce(); why != "" || !r.counts {
		return why
	}
	for _, k := range slices.SortedFunc(maps.Keys(r.changed), about.compare) {
		e, state := r.changed[k], r.Moments()[0]
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

// scalarsOnce says of which scalar of a step that all ranks finished not one copy
// counts, although others do, or digests in a record that has the passes too.
func (r *Run) scalarsOnce() string {
	marks, marked := map[about][]int{}, r.counts && r.Some(trace.KindPhase)
	for k, e := range r.scalars {
		k.rank = 0
		copies := marks[k]
		if e.Once {
			copies, marked = append(copies, e.Rank), true
		}
		marks[k] = copies
	}
	if !marked {
		return ""
	}
	for _, k := range slices.SortedFunc(maps.Keys(marks), about.compare) {
		all := k.step >= r.First && k.step < r.Steps
		for rank := 0; rank < r.Header.World && all; rank++ {
			all = r.Finished(rank, k.step)
		}
		if all && len(marks[k]) != 1 {
			return fmt.Sprintf("of the %s of step %d the copies of ranks %v count, not that of one rank", k.what, k.step, slices.Sorted(slices.Values(marks[k])))
		}
	}
	return ""
}

func (k about) compare(o about) int {
	return cmp.Or(cmp.Compare(k.step, o.step), cmp.Compare(k.rank, o.rank), cmp.Compare(k.what, o.what), cmp.Compare(k.tensor, o.tensor), cmp.Compare(k.worker, o.worker))
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
