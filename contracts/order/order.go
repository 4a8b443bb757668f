// Package order is contract C-ORDER-001: the order in which ranks go on changes
// nothing.
package order

import (
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/evidence"
	"github.com/lockstep-ml/lockstep/core/spec"
)

// Contract is C-ORDER-001.
func Contract() *contract.Contract {
	c := func(n, says, reads string, class contract.Class, check func(*contract.Pass)) *contract.Clause {
		return &contract.Clause{ID: "C-ORDER-001." + n, Says: says, Class: class, Reads: reads, Check: check}
	}
	return &contract.Contract{
		ID:        "C-ORDER-001",
		Title:     "The order of ranks changes nothing",
		Statement: "Whichever rank, or reduction beside it, goes on first: the run has the same bits, uses no memory before or after its time, and ends.",
		Doc:       doc,
		Control:   func(c spec.Config) spec.Config { return c },
		Clauses: []*contract.Clause{
			c("1", "Under every schedule the run has the bits of the run that nobody schedules.",
				"digest, changed, scalar, skip of each scheduled run and of the control; turns", contract.Exact, scheduled(same)),
			c("2", "No memory is used before it is ready, while another uses it, or after it was given up.",
				"turns, hazard; digest (elements that are not finite)", contract.Exact, scheduled(unhurt)),
			c("3", "Every rank ends under every schedule.",
				"turns, end, hazard (deadlock, failed)", contract.Exact, scheduled(ended)),
		},
	}
}

// scheduled is a check of every scheduled run beside the control.
func scheduled(check func(*contract.Pass, contract.Role, *evidence.Run, *evidence.Run)) func(*contract.Pass) {
	return evidence.WithBoth(contract.Control, func(p *contract.Pass, _, control *evidence.Run) {
		for _, role := range Roles(p) {
			r, ok := evidence.Read(p, role)
			if !ok {
				continue
			}
			if r.Header.Spec.String() != control.Header.Spec.String() {
				p.Doubt("the %s run is of another configuration than the control", role)
				continue
			}
			check(p, role, r, control)
		}
	})
}

const doc = `Ranks run at the same time, and reductions beside the computation. A gradient
that is cleared while it is reduced, weights that are read while they arrive, a
buffer that is given back while a peer still reads it: each gives wrong bits only
where the one is quicker than the other, once in a thousand runs, on one machine
and not on the next (deepspeedai/DeepSpeed#7371 and #7898,
NVIDIA/Megatron-LM#5222, ByteDance-Seed/VeOmni#419); two ranks that wait for each
other hang where messages are not buffered (pytorch/pytorch#172668). Repeating a
run does not find them. Here a scheduler
decides who goes on: ranks and the queues of their reductions take turns, at every
kernel and every operation of a communicator. The same schedule makes the same run
every time, without a clock.

The schedules: some seeds, and those that go wrong where a run goes wrong at all:
the lowest rank first, the highest rank first, one after the other, reductions as
late and as early as can be. Each is a run of its own, judged against the run of
the same plan that Go's own scheduler decides.

How each clause judges
  1  Every digest and scalar of every rank, in their order, against the run that
     nobody schedules.
  2  While a run is scheduled every use of memory is held against those before it:
     what one goroutine does comes before what another does only where one handed
     something to the other. Two uses of one element of which neither comes first
     are found under every schedule, also where they happened in the right order,
     and whatever the values. Memory that is given up (weights after use in ZeRO
     stage 3, gradients that were reduced, activations, buffers between stages) is
     filled with NaN; a use before it is written again is found, and no digest may
     hold an element that is not finite.
  3  A goroutine that waits says for what. Where none can go on the run would hang
     for ever: the finding says who did not come to what, and what it does instead. A
     rank that breaks down is named with the place. Every rank must reach its end.

How to read a finding
  rank, step  who made the second of the two uses, in which step
  tensor      what the reduction or gather moves that one of the uses belongs to
  message     who used what for which kernel. "rank 0 (Fill, which writes) and rank
              1's queue (Reduce, which reads) in all-reduce of block.1": rank 0
              clears a gradient that rank 1 still sums up. Look for the wait that
              is missing between the two.
  A finding of clause 1 alone is an order of sums that depends on who comes first.`
