package comm

// Turns decides which goroutine of a run goes on where several could, and learns
// what comes before what. Whoever starts a goroutine, waits for another one or
// hands it something says so; where a Turns is nil, Go alone decides.
type Turns interface {
	// Run runs f(0), ..., f(n-1), the ranks of a run, each on a goroutine of its
	// own, and returns when these and all that Go started have returned.
	Run(n int, f func(rank int))
	// Go runs f on another goroutine of the caller's rank. What the caller did so
	// far comes before f.
	Go(name string, f func())
	// Await returns when ready reports true. ready may be called by any goroutine of
	// the run while all others rest, and orders nothing. The error says that no
	// goroutine can go on: the caller must give up what it waits for.
	Await(what Wait, ready func() bool) error
	// Release is what the caller has done so far.
	Release() Moment
	// Acquire says that a moment comes before what the caller does next.
	Acquire(Moment)
}

// Moment is a point in the run of a goroutine, as a Turns knows it; nil is before
// everything.
type Moment any

// Wait says what a goroutine waits for.
type Wait uint8

// What goroutines wait for.
const (
	ForPeers Wait = iota // ranks that take part in an operation
	ForQueue             // functions that a Queue runs
	ForWork              // functions that somebody submits to a Queue: the rest of its goroutine
	ForOther
)

// String is what is waited for, in a message.
func (w Wait) String() string {
	switch w {
	case ForPeers:
		return "its peers"
	case ForQueue:
		return "its queue"
	case ForWork:
		return "work"
	}
	return "another goroutine"
}
