package protocol

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
	// ErrLost: the connection to a rank ended, or its process did.
	ErrLost = errors.New("a rank is lost")
	// ErrCorrupt: a link carried what nobody sent.
	ErrCorrupt = errors.New("a link is corrupt")
)

// Failure is why a world ended: the first cause, and the world rank it began
// at, -1 where no single rank is to blame.
type Failure struct {
	Peer int
	Err  error
}

// What failures say, whatever carried the operations. ranks are the group's
// ranks in the world, rank is an index in them.

// TooLate is of an operation on a group that this rank has closed.
func TooLate(ranks []int, rank int, h *Call) Failure {
	return Failure{ranks[rank], fmt.Errorf("%w: %s after it closed the group", ErrLeft, h.Said(ranks, rank))}
}

// Refused is of arguments that break a rule.
func Refused(ranks []int, rank int, h *Call) Failure {
	return Failure{ranks[rank], fmt.Errorf("%s: %w", h.Said(ranks, rank), h.Invalid)}
}

// Overlapping is of a second operation of a rank that is still in busy.
func Overlapping(ranks []int, rank int, h, busy *Call) Failure {
	return Failure{ranks[rank], fmt.Errorf("%w: %s while it is in %s; split the group to overlap operations",
		ErrMismatch, h.Said(ranks, rank), busy.Describe(ranks))}
}

// NeedsLeft is of an operation that needs a world rank which has left.
func NeedsLeft(ranks []int, world int, h *Call) Failure {
	return Failure{world, fmt.Errorf("%w: rank %d closed the group of ranks %v, which %s needs",
		ErrLeft, world, ranks, h.Describe(ranks))}
}

// Expired is of the world ranks that did not come within the deadline.
func Expired(ranks []int, h *Call, missing []int, deadline time.Duration) Failure {
	return Failure{missing[0], fmt.Errorf("%w: %s did not come to %s within %v",
		ErrDeadline, ListRanks(missing), h.Describe(ranks), deadline)}
}

// Stopped is of a rank that stopped waiting, because of why.
func Stopped(ranks []int, rank int, h *Call, why error) Failure {
	return Failure{ranks[rank], fmt.Errorf("rank %d stopped in %s: %w", ranks[rank], h.Describe(ranks), why)}
}

// Broken is of a rank whose part of the work failed.
func Broken(ranks []int, rank int, h *Call, err error) Failure {
	return Failure{ranks[rank], fmt.Errorf("rank %d in %s: %w", ranks[rank], h.Describe(ranks), err)}
}

// Unfit is of the two sides of a message, each as said, whose lengths differ.
func Unfit(said ...string) Failure {
	slices.Sort(said)
	return Failure{-1, fmt.Errorf("%w: %s", ErrMismatch, strings.Join(said, ", "))}
}
