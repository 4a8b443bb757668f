package comm

import (
	"errors"

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
	ErrDeadline = errors.New("deadline expired")
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
