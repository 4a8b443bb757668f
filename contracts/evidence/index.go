package evidence

import (
	"iter"
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// stepOf is a step of a rank.
type stepOf struct{ rank, step int }

// about is what an event is evidence of.
type about struct {
	rank, step   int
	what, tensor string
	worker       int
}

func (r *Run) index() {
	r.digests, r.scalars = map[about]trace.Event{}, map[about]trace.Event{}
	r.somehow = map[about]bool{}
	r.changed, r.captured = map[about]trace.Event{}, map[about][]trace.Event{}
	r.steps = map[stepOf][]int32{}
	for rank, all := range r.Ranks {
		for i := range all {
			at := stepOf{rank, all[i].Step}
			r.steps[at] = append(r.steps[at], int32(i))
		}
	}
	for e := range r.All {
		k := about{e.Rank, e.Step, e.What, e.Tensor, e.Worker}
		switch e.Kind {
		case trace.KindDigest:
			if e.Digest != nil {
				r.digests[k] = Add(r.digests[k], e)
				r.counts = r.counts || e.Once
				r.somehow[about{-1, e.Step, e.What, e.Tensor, e.Worker}] = true
			}
			if e.Data != nil {
				r.captured[k] = append(r.captured[k], e)
			}
		case trace.KindChanged, trace.KindUnmoved:
			k.what = string(e.Kind)
			if before, shared := r.changed[k]; shared {
				e = join(before, e)
			}
			r.changed[k] = e
		case trace.KindScalar:
			r.scalars[k] = e
		}
	}
}

// Add joins two digests of one tensor: parts of it add up. A tensor that a rank
// recorded twice thereby has a count that fits nothing. Added to nothing, the zero
// event, e stays as it is.
func Add(sum, e trace.Event) trace.Event {
	if sum.Digest == nil {
		return e
	}
	d := *sum.Digest
	d.Add(*e.Digest)
	sum.Digest = &d
	sum.Count += e.Count
	sum.Squares += e.Squares
	sum.Data = slices.Concat(sum.Data, e.Data)
	return sum
}

// Digest is what rank recorded of a tensor: What is a value of package trace,
// worker the logical worker of a WorkerGrad and 0 otherwise.
func (r *Run) Digest(rank, step int, what, tensor string, worker int) (trace.Event, bool) {
	e, ok := r.digests[about{rank, step, what, tensor, worker}]
	return e, ok
}

// Logical is the digest of the whole tensor: the copies of all ranks that are
// marked to count once, added up.
func (r *Run) Logical(step int, what, tensor string, worker int) (sum trace.Event, ok bool) {
	if !r.somehow[about{-1, step, what, tensor, worker}] {
		return sum, false
	}
	for rank := range r.Header.World {
		if e, has := r.digests[about{rank, step, what, tensor, worker}]; has && e.Once {
			sum, ok = Add(sum, e), true
		}
	}
	return sum, ok
}

// Scalar is a scalar that rank recorded.
func (r *Run) Scalar(rank, step int, what string) (trace.Event, bool) {
	e, ok := r.scalars[about{rank: rank, step: step, what: what}]
	return e, ok
}

// Events yields the events of one kind and rank, in their order.
func (r *Run) Events(rank int, kind trace.Kind) iter.Seq[trace.Event] {
	return func(yield func(trace.Event) bool) {
		for _, e := range r.Ranks[rank] {
			if e.Kind == kind && !yield(e) {
				return
			}
		}
	}
}

// In yields the events of one kind and rank in one step, in their order.
func (r *Run) In(step, rank int, kind trace.Kind) iter.Seq[trace.Event] {
	return func(yield func(trace.Event) bool) {
		for _, i := range r.steps[stepOf{rank, step}] {
			if e := &r.Ranks[rank][i]; e.Kind == kind && !yield(*e) {
				return
			}
		}
	}
}

// Same reports whether two digests are of equally many elements with equal bits;
// every NaN has those of every other.
func Same(a, b trace.Event) bool {
	return a.Digest != nil && b.Digest != nil && *a.Digest == *b.Digest && a.Count == b.Count
}

// Lost doubts what is compared with elements that are not finite: where they agree
// nothing is proved, and that they are there another clause reports. A pass says so
// once.
func Lost(p *contract.Pass, at int, what string, e trace.Event) {
	if !Finite(e) && !p.Doubtful(lost) {
		p.Doubt("%s: %s of step %d has %d; what agrees with them proves nothing", lost, what, at, e.Digest.NonFinite)
	}
}

const lost = "elements that are not finite"

// Finite reports whether every element of a digest is finite.
func Finite(e trace.Event) bool { return e.Digest == nil || e.Digest.NonFinite == 0 }
