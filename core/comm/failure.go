package comm

import "github.com/lockstep-ml/lockstep/core/comm/internal/protocol"

// Causes of a failed operation, for errors.Is. A context that ended is its own
// cause.
var (
	// ErrMismatch: ranks of one group called operations that do not fit.
	ErrMismatch = protocol.ErrMismatch
	// ErrLeft: a rank closed the group while a peer needed it.
	ErrLeft = protocol.ErrLeft
	// ErrDeadline: a peer did not come within the deadline.
	ErrDeadline = protocol.ErrDeadline
	// ErrDeadlock: every rank waits for one that never comes, or has ended.
	ErrDeadlock = protocol.ErrDeadlock
	// ErrArgument: a rank called an operation with arguments that break a rule.
	ErrArgument = protocol.ErrArgument
	// ErrPanicked: a rank left an operation by a panic.
	ErrPanicked = protocol.ErrPanicked
	// ErrLost: the connection to a rank ended, or its process did.
	ErrLost = protocol.ErrLost
	// ErrCorrupt: a link carried what nobody sent.
	ErrCorrupt = protocol.ErrCorrupt
)
