package comm

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-ml/lockstep/core/names"
)

// Causes of a failed operation, for errors.Is. A context that ended is its own
// cause.
var (
	// ErrMismatch: ranks of one group called operations that do not fit.
	ErrMismatch = errors.New(names.Mismatch)
	// ErrLeft: a rank closed the group while a peer needed it.
	ErrLeft = errors.New("a rank left the group")
	// ErrDeadline: a peer did not come within the deadline.
	ErrDeadline = errors.New(names.Late)
	// ErrDeadlock: every rank waits for one that never comes, or has ended.
	ErrDeadlock = errors.New("ranks wait for each other")
	// ErrArgument: a rank called an operation with arguments that break a rule.
	ErrArgument = errors.New("bad argument")
	// ErrPanicked: a rank left an operation by a panic.
	ErrPanicked = errors.New("a rank panicked")
)

// failure is why a world ended: the first cause, and the world rank it began
// at, -1 where no single rank is to blame.
type failure struct {
	peer int
	err  error
}

// What failures say, whatever carried the operations. ranks are the group's
// ranks in the world, rank is an index in them.

// tooLate is of an operation on a group that this rank has closed.
func tooLate(ranks []int, rank int, h *header) failure {
	return failure{ranks[rank], fmt.Errorf("%w: %s after it closed the group", ErrLeft, h.said(ranks, rank))}
}

// refused is of arguments that break a rule.
func refused(ranks []int, rank int, h *header) failure {
	return failure{ranks[rank], fmt.Errorf("%s: %w", h.said(ranks, rank), h.invalid)}
}

// overlapping is of a second operation of a rank that is still in busy.
func overlapping(ranks []int, rank int, h, busy *header) failure {
	return failure{ranks[rank], fmt.Errorf("%w: %s while it is in %s; split the group to overlap operations",
		ErrMismatch, h.said(ranks, rank), busy.describe(ranks))}
}

// needsLeft is of an operation that needs a world rank which has left.
func needsLeft(ranks []int, world int, h *header) failure {
	return failure{world, fmt.Errorf("%w: rank %d closed the group of ranks %v, which %s needs",
		ErrLeft, world, ranks, h.describe(ranks))}
}

// expired is of the world ranks that did not come within the deadline.
func expired(ranks []int, h *header, missing []int, deadline time.Duration) failure {
	return failure{missing[0], fmt.Errorf("%w: %s did not come to %s within %v",
		ErrDeadline, listRanks(missing), h.describe(ranks), deadline)}
}

// stopped is of a rank that stopped waiting, because of why.
func stopped(ranks []int, rank int, h *header, why error) failure {
	return failure{ranks[rank], fmt.Errorf("rank %d stopped in %s: %w", ranks[rank], h.describe(ranks), why)}
}

// broken is of a rank whose part of the work failed.
func broken(ranks []int, rank int, h *header, err error) failure {
	return failure{ranks[rank], fmt.Errorf("rank %d in %s: %w", ranks[rank], h.describe(ranks), err)}
}

// unfit is of the two sides of a message, each as said, whose lengths differ.
func unfit(said ...string) failure {
	slices.Sort(said)
	return failure{-1, fmt.Errorf("%w: %s", ErrMismatch, strings.Join(said, ", "))}
}
