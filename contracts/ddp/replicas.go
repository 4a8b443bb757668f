package ddp

import (
	"fmt"
	"math/bits"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// initial is clause 1: replicas start bit-equal.
func initial(p *contract.Pass) {
	r, ok := read(p, contract.Test)
	if !ok {
		return
	}
	for _, what := range r.State() {
		for _, t := range r.Params {
			replicas(p, r, -1, what, t)
		}
	}
}

// updated is clause 2: after every step replicas are bit-equal, and no two
// buffers of different ranks overlap.
func updated(p *contract.Pass) {
	r, ok := read(p, contract.Test)
	if !ok {
		return
	}
	apart(p, r)
	for step := range r.Config.Steps {
		for _, what := range r.State() {
			for _, t := range r.Params {
				replicas(p, r, step, what, t)
			}
		}
		counters(p, r, step)
	}
}

// replicas compares all ranks' copies of one tensor.
func replicas(p *contract.Pass, r *evidence.Run, step int, what string, t evidence.Tensor) {
	copies := map[int]trace.Event{}
	p.Expect(r.Header.World)
	for rank := range r.Header.World {
		if e, ok := r.Digest(rank, step, what, t.Name, 0); ok {
			p.Saw(1)
			copies[rank] = e
		}
	}
	ref, out := evidence.Dissent(copies)
	for _, rank := range out {
		f := contract.Finding{Rank: rank, Step: step, Tensor: t.Name,
			Message: fmt.Sprintf("%s of rank %d differs from that of rank %d (%d of %d ranks agree)", what, rank, ref, len(copies)-len(out), len(copies))}
		p.Report(r.Fill(f, copies[rank], copies[ref]))
	}
}

// counters compares the number of optimizer steps that ranks have taken.
func counters(p *contract.Pass, r *evidence.Run, step int) {
	first := -1
	var want trace.Event
	p.Expect(r.Header.World)
	for rank := range r.Header.World {
		e, ok := r.Scalar(rank, step, trace.Counter)
		if !ok {
			continue
		}
		p.Saw(1)
		if first < 0 {
			first, want = rank, e
		}
		if e.Value != want.Value {
			p.Report(contract.Finding{Rank: rank, Step: step, Index: -1, Got: fmt.Sprint(e.Value), Want: fmt.Sprint(want.Value),
				Message: fmt.Sprintf("rank %d has taken %v optimizer steps, rank %d %v", rank, e.Value, first, want.Value)})
		}
	}
}

// apart reports buffers that share memory. Replicas in one memory are equal
// whatever the reduction does, so equality would prove nothing.
func apart(p *contract.Pass, r *evidence.Run) {
	var all []trace.Event
	for rank := range r.Header.World {
		// The state, and the binary counter over the rank's logical workers.
		p.Expect(len(r.State()) + bits.Len(uint(r.Workers/r.Header.World)))
		for e := range r.Events(rank, trace.KindSpan) {
			if e.Span != nil {
				p.Saw(1)
				all = append(all, e)
			}
		}
	}
	for i, a := range all {
		for _, b := range all[:i] {
			if a.Span.Overlaps(*b.Span) {
				p.Report(contract.Finding{Rank: a.Rank, Step: -1, Index: -1,
					Got:     fmt.Sprintf("[0x%x,0x%x)", a.Span.Lo, a.Span.Hi),
					Message: fmt.Sprintf("the %s buffer of rank %d shares memory with the %s buffer of rank %d", a.What, a.Rank, b.What, b.Rank)})
			}
		}
	}
}
