package kernels

// Stager is what a Backend offers whose elements are not in the memory of this process:
// communicators between processes carry elements through a backend that has them there.
// Decorators hide it unless they unwrap, see TallierOf.
type Stager interface {
	// Staging is a backend of host memory that gives the same bits. It may be the same
	// one at every call.
	Staging() Backend
}

// StagerOf finds the Stager of a backend, as TallierOf does the Tallier.
func StagerOf(b Backend) (s Stager, ok bool) { return find[Stager](b) }

// find is b itself, or the first of those that it decorates, that offers a T.
func find[T any](b Backend) (t T, ok bool) {
	for b != nil {
		if t, ok = b.(T); ok {
			return t, true
		}
		u, decorates := b.(interface{ Unwrap() Backend })
		if !decorates {
			break
		}
		b = u.Unwrap()
	}
	return t, false
}
