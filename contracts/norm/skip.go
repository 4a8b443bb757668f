package norm

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/bounded"
	"github.com/lockstep-ml/lockstep/contracts/compare"
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// decided is clause 3: a gradient that is not finite moves nobody, any other
// moves all.
func decided(p *contract.Pass, r *evidence.Run) {
	held := r.Held()
	for step := r.First; step < r.Steps; step++ {
		steps, known := finite(r, step)
		if !p.Found(known) {
			continue
		}
		for rank := range r.Header.World {
			before, ok1 := counter(r, rank, step-1)
			after, ok2 := counter(r, rank, step)
			norm, ok3 := r.Scalar(rank, step, trace.Norm)
			if !p.Found(ok1 && ok2 && ok3) {
				continue
			}
			at := p.At(rank, step)
			switch x := float64(norm.Value); {
			case steps && after != before+1:
				at.Report(after, before+1, "the gradient is finite, and the counter of rank %d does not say that it took one step", rank)
			case !steps && after != before:
				at.Report(after, before, "the gradient is not finite, and the counter of rank %d moves", rank)
			case !steps && !(math.IsNaN(x) || math.IsInf(x, 0)):
				at.Report(x, "not finite", "the gradient is not finite, but its norm on rank %d is", rank)
			case steps == skips(r, rank, step):
				at.Report(!steps, steps, "rank %d does not record that it skipped the step, or records one that it did not skip", rank)
			}
		}
		if !steps {
			stays(p, r, held, step)
		}
	}
}

// counter is how many steps a rank says to have taken after a step.
func counter(r *evidence.Run, rank, step int) (int, bool) {
	if step < r.First {
		return r.Taken, true
	}
	e, ok := r.Scalar(rank, step, trace.Counter)
	return int(e.Value), ok
}

// skips reports whether a rank says that it took no step.
func skips(r *evidence.Run, rank, step int) bool {
	for range r.In(step, rank, trace.KindSkip) {
		return true
	}
	return false
}

// stays checks that a step changed no weight and no moment on any rank.
func stays(p *contract.Pass, r *evidence.Run, held map[string][]evidence.Holding, step int) {
	for _, what := range r.State() {
		for _, t := range r.Params {
			p.Expect(r.Records(held[t.Name], what))
			before := map[int]trace.Event{}
			for _, c := range r.Copies(held[t.Name], step-1, what, 0) {
				before[c.Rank] = c.Event
			}
			for _, c := range r.Copies(held[t.Name], step, what, 0) {
				was, ok := before[c.Rank]
				if !ok {
					continue
				}
				p.Saw(1)
				if !evidence.Same(c.Event, was) {
					r.Report(p.At(c.Rank, step).Of(t.Name), c.Event, was, "the gradient is not finite, and %s of rank %d moves", what, c.Rank)
				}
			}
		}
	}
}

// resumed is clause 4: steps are counted by the optimizer, not by the data.
func resumed(p *contract.Pass) {
	c, ok := compare.Open(p)
	if !ok {
		return
	}
	taken, captured := c.Test.Taken, c.Control.Config.Recording.Capture
	for step := c.Test.First; step < c.Test.Steps; step++ {
		c.State(step, nil)
		steps, known := finite(c.Test, step)
		if !p.Found(known) {
			return
		}
		if captured && !recomputed(p, c.Control, step, taken) {
			return
		}
		want := map[string]float64{trace.LR: c.Test.Config.Optimizer.At(taken)}
		if steps {
			taken++
		}
		want[trace.Counter] = float64(taken)
		for rank := range c.Test.Header.World {
			counts(p, c.Test, rank, step, want)
		}
	}
}

// counts compares a rank's scalars with what the number of steps taken makes
// them.
func counts(p *contract.Pass, r *evidence.Run, rank, step int, want map[string]float64) {
	for _, what := range []string{trace.LR, trace.Counter} {
		e, ok := r.Scalar(rank, step, what)
		contract.Compare(p.At(rank, step), ok, float64(e.Value), want[what],
			"%s of rank %d does not follow from the steps that were taken", what, rank)
	}
}

// recomputed judges the single worker's step by its own recorded elements and
// the steps that were taken before.
func recomputed(p *contract.Pass, r *evidence.Run, step, taken int) bool {
	p.Expect(1)
	s, ok := bounded.Captured(r, bounded.Replicas(r)[0], step)
	if !ok {
		return false
	}
	if p.Oracle == nil {
		p.Doubt("no oracle to recompute the update with")
		return false
	}
	want, err := p.Oracle.Update(r.Config, taken, s.Before, s.Grad)
	if err != nil {
		p.Doubt("%v", err)
		return false
	}
	p.Saw(1)
	for _, what := range r.State() {
		for _, t := range r.Params {
			got, want := s.After[what][t.Name], want[what][t.Name]
			if i := evidence.FirstDifference(got, want); i >= 0 {
				evidence.ReportElement(p.At(0, step).Of(t.Name).By(contract.Control), i, got, want,
					"%s of the single worker is not what the optimizer makes of the gradient after the steps that were taken", what)
			}
		}
	}
	return true
}

// named is clause 5: the first producer of what is not finite is the single
// worker's. Where the gradient is finite and the workers' are not recorded there
// is nothing to be named, and nowhere to look.
func named(p *contract.Pass, test, control *evidence.Run) {
	held, want, got := test.Held(), producers(control), producers(test)
	for step := test.First; step < test.Steps; step++ {
		steps, known := finite(control, step)
		if p.Found(known) && (!steps || test.Config.Recording.Workers) {
			producer(p, test, held, step, want[step], got[step])
			if !steps && len(want[step]) == 0 {
				p.At(-1, step).Report(nil, nil, "the reduced gradient is not finite, and no logical worker's gradient shows where that began")
			}
		}
	}
}

// producer compares the workers' gradients of a step that are not finite: those that
// must be, and those that are.
func producer(p *contract.Pass, test *evidence.Run, held map[string][]evidence.Holding, step int, want, got map[origin]int) {
	seen := recorded(test, held, step)
	p.Expect(len(test.Sources) * min(test.Workers, test.Config.Sequences))
	p.Saw(len(seen))
	for _, at := range sorted(want) {
		if _, ok := got[at]; !ok && seen[at] {
			p.At(-1, step).Of(at.tensor).Against(contract.Control).Report(nil, nil,
				"the single worker shows values that are not finite in the gradient of logical worker %d, this run does not", at.worker)
		}
	}
	for _, at := range sorted(got) {
		if _, ok := want[at]; !ok {
			rank := got[at]
			p.At(rank, step).Of(at.tensor).Against(contract.Control).Report(nil, nil,
				"rank %d shows values that are not finite in the gradient of logical worker %d, the single worker does not", rank, at.worker)
		}
	}
}

// origin is a logical worker's gradient of a parameter.
type origin struct {
	worker int
	tensor string
}

// sorted lists origins by worker and parameter.
func sorted(of map[origin]int) []origin {
	return slices.SortedFunc(maps.Keys(of), func(a, b origin) int {
		return cmp.Or(cmp.Compare(a.worker, b.worker), cmp.Compare(a.tensor, b.tensor))
	})
}

// producers lists, by step, the workers' gradients that are not finite, each with a
// rank that has it.
func producers(r *evidence.Run) map[int]map[origin]int {
	out := map[int]map[origin]int{}
	for e := range r.All {
		if e.Kind != trace.KindDigest || e.What != trace.WorkerGrad || evidence.Finite(e) {
			continue
		}
		if out[e.Step] == nil {
			out[e.Step] = map[origin]int{}
		}
		out[e.Step][origin{e.Worker, e.Tensor}] = e.Rank
	}
	return out
}

// recorded lists the workers' gradients of a step of which all is recorded.
func recorded(r *evidence.Run, held map[string][]evidence.Holding, step int) map[origin]bool {
	out := map[origin]bool{}
	for _, t := range r.Sources {
		for w := range r.Workers {
			all := evidence.Whole(evidence.BySlice(r.Copies(held[t.Name], step, trace.WorkerGrad, w)))
			if all.Count == t.Len {
				out[origin{w, t.Name}] = true
			}
		}
	}
	return out
}
