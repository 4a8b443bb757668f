package kernels

// Routine is a piece of a backend's code that a kernel runs or does not run,
// depending on shapes: a routine of assembly, or a way to share work between
// threads.
type Routine struct {
	// Name is unique within the backend.
	Name string
	// Calls is how often it has run.
	Calls uint64
}

// Tallier is what a Backend may offer beside its kernels: a count of what ran. A
// result that is right proves nothing about code that never ran; a tally says
// which that is. Decorators hide it unless they unwrap, see TallierOf.
type Tallier interface {
	// Tally lists all routines that the backend, as it was opened, has for its
	// kernels, in an order that does not change, with their calls since it was
	// opened. Package ref alone, which has one way through each kernel, lists
	// nothing; any other backend lists at least one routine for each family of
	// kernels, or its tally counts as incomplete. It may be called while kernels run;
	// what a kernel ran is counted when it is done.
	Tally() []Routine
}

// TallierOf finds the Tallier of a backend: the backend itself, or the first that
// offers a tally of those that it decorates. A decorator shows what it decorates
// by a method
//
//	Unwrap() Backend
//
// ok is false where none offers one.
func TallierOf(b Backend) (t Tallier, ok bool) { return find[Tallier](b) }
