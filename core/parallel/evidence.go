package parallel

import (
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Evidence records what a rank's tensors hold. Where the backend's sums are there later, and
// the recorder can hold events back for so long, they are recorded by Settle, each in its
// place among the others.
type Evidence struct {
	Recorder trace.Recorder
	Sums     kernels.Sums
	holder   trace.Holder // nil where sums are there at once
}

// NewEvidence records what a backend's tensors hold; rec may be nil.
func NewEvidence(rec trace.Recorder, be kernels.Backend) *Evidence {
	e := &Evidence{Recorder: rec, Sums: kernels.SumsNow(be)}
	if h, holds := rec.(trace.Holder); holds {
		if s, later := kernels.SumsOf(be); later {
			e.Sums, e.holder = s, h
		}
	}
	return e
}

// Record takes an event of which Sums has been asked for the digest, and for squares and
// changed where they are not nil: they become its Squares and its Count.
func (e *Evidence) Record(ev trace.Event, squares *kernels.SquareSum, changed *int) {
	if e.holder != nil {
		e.holder.Hold(ev, func(ev *trace.Event) { complete(ev, squares, changed) })
		return
	}
	complete(&ev, squares, changed)
	trace.Record(e.Recorder, ev)
}

func complete(ev *trace.Event, squares *kernels.SquareSum, changed *int) {
	if squares != nil {
		ev.Squares = trace.Float(squares.Sum())
	}
	if changed != nil {
		ev.Count = int64(*changed)
	}
}

// squares gives a sum of no squares: old anew, where nobody waits for it any more.
func (e *Evidence) squares(old *kernels.SquareSum) *kernels.SquareSum {
	if old == nil || e.holder != nil {
		return new(kernels.SquareSum)
	}
	*old = kernels.SquareSum{}
	return old
}

// Settle waits for the sums and has the events recorded that were held.
func (e *Evidence) Settle() {
	e.Sums.Wait()
	if e.holder != nil {
		e.holder.Release()
	}
}
