// Package othertrainer shows how to hold a communicator, a backend or a whole
// trainer of one's own against lockstep: communicator.go, backend.go and
// trainer.go are the author's, the tests beside them are all that is needed, and
// each has a second test with a planted bug. See README.md.
package othertrainer
