package evidence

import (
	"fmt"
	"math/bits"

	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// Apart reports buffers that share memory. Copies in one memory are equal
// whatever is sent between ranks, so equality would prove nothing. Addresses of two
// processes may coincide and say nothing of each other.
func (r *Run) Apart(p *contract.Pass) {
	var all []trace.Event
	// The state of each model part, and the binary counter over the rank's logical
	// workers.
	each := len(r.State()) + bits.Len(uint(r.Workers/r.Config.Plan.DP))
	for rank := range r.Header.World {
		p.Expect(each * len(r.Layouts(rank)))
		for e := range r.Events(rank, trace.KindSpan) {
			if e.Span != nil {
				p.Saw(1)
				all = append(all, e)
			}
		}
	}
	for i, a := range all {
		for _, b := range all[:i] {
			if a.Span.Overlaps(*b.Span) && r.Origin(a.Rank).SameProcess(r.Origin(b.Rank)) {
				p.At(a.Rank, -1).In(contract.Memory, 0).Report(fmt.Sprintf("[0x%x,0x%x)", a.Span.Lo, a.Span.Hi), nil,
					"the %s buffer of rank %d shares memory with the %s buffer of rank %d", a.What, a.Rank, b.What, b.Rank)
			}
		}
	}
}
