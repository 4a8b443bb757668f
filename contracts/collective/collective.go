// Package collective is contract C-COMM-001: every collective of every communicator
// gives the right result.
package collective

import "github.com/lockstep-ml/lockstep/contracts/contract"

// Contract is C-COMM-001.
func Contract() *contract.Contract {
	c := func(n, says string, class contract.Class, check func(*contract.Pass)) *contract.Clause {
		return &contract.Clause{ID: "C-COMM-001." + n, Says: says, Class: class, Evidence: "drill", Check: check}
	}
	return &contract.Contract{
		ID:        "C-COMM-001",
		Title:     "Collectives give the right result",
		Statement: "Every collective of every communicator gives the right result: for all sizes, sub-groups and roots, in place and out of place, time after time, on every rank.",
		Doc:       doc,
		Clauses: []*contract.Clause{
			c("1", "Inputs that add exactly in any order give the right result in every operation.", contract.Exact, each(right)),
			c("2", "Sums are the canonical tree over the ranks, bit for bit, signed zeros included.", contract.Exact, each(ordered)),
			c("3", "Vectors that are empty, that the ranks do not divide, and parts of unequal size give the right result.", contract.Exact, each(sized)),
			c("4", "Sub-groups, and every root of a broadcast, give the right result.", contract.Exact, each(grouped)),
			c("5", "In place and out of place give the right result, and nothing beside it is written.", contract.Exact, each(placed)),
			c("6", "The same operations on the same communicators give the same bits again.", contract.Exact, with(repeated)),
			c("7", "All ranks get the same result, and operations that do not fit are refused on every rank by an error that says so.", contract.Exact, with(agreed)),
		},
	}
}

const doc = `Everything else rests on the collectives: a sum in another order changes the
last bit of every weight, a wrong tail changes one weight in a thousand. So they
are drilled by themselves, before any training is judged.

A drill runs every operation over many sizes, groups, roots and layouts, and
records a digest of each result with the guard elements round it. What the
digest must be is computed from the drill's plan alone by another road: in
integers where inputs add exactly in any order, by a recursive tree where they
do not. -0, NaN, infinities and subnormals are planted among the inputs.

How each clause judges
  1  Inputs that are small multiples of one power of two: their sums are exact
     in any order, so any algorithm must have these bits (the idea of
     nccl-tests). Finds lost, doubled and stale contributions
     (NVIDIA/nccl#2053, NVIDIA/nccl#434, NVIDIA/nccl-tests#131).
  2  Inputs of full mantissas and mixed magnitudes: only the canonical tree has
     these bits. Ring and star add in another order by design and are not judged
     by this clause (NVIDIA/nccl#855, NVIDIA/nccl#1497: differences in the last
     bits between algorithms are no fault).
  3  Zero elements must be legal (pytorch/pytorch#85234); tails are where sizes
     that the number of ranks does not divide go wrong.
  4  Groups other than the world, in another order than the world's, and every
     root: results are right by accident as long as group and world are one.
  5  Output that lies within the input is overwritten too early by a careless
     algorithm; guard elements show writes beside the result.
  6  The whole drill once more on the same communicators: state that survives an
     operation shows, and faults that come rarely.
  7  Rank against rank; and ranks that call different operations must all get an
     error, since a collective that accepts them corrupts silently
     (pytorch/pytorch#75902). Tried is all that ranks can disagree on: operation,
     element type, reduction, length, bounds and root, and of messages length,
     direction and peer.

How to read a finding
  rank    the rank whose result is wrong
  step    the repetition of the drill, from 0
  got, want   the digests of the result with its guards
  The message names operation, group, elements and layout. One rank that is
  wrong in all operations points at its memory or link; one operation that is
  wrong on all ranks points at the algorithm.`
