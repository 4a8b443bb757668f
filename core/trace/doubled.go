package trace

import (
	"fmt"
	"hash/maphash"
)

// doubled finds lines of a file that are there twice although what they record
// cannot have happened twice: an operation of a communicator has a number of its own,
// and of a step's state and scalars there is one record. Such a line says that the file
// is damaged, and nothing of the run. What may happen twice, as a gradient that enters
// a sum or a message, is left to who judges it.
type doubled struct {
	seed  maphash.Seed
	lines map[uint64]int // by hash of a line where it was first
	first string         // which line repeats which
	more  int            // further ones
}

func newDoubled() *doubled { return &doubled{seed: maphash.MakeSeed(), lines: map[uint64]int{}} }

// is reports whether line n of a file, which holds e, repeats an earlier one.
func (r *doubled) is(e *Event, line []byte, name string, n int) bool {
	if !e.once() {
		return false
	}
	h := maphash.Bytes(r.seed, line)
	before, again := r.lines[h]
	switch {
	case !again:
		r.lines[h] = n
	case r.first == "":
		r.first = fmt.Sprintf("%s:%d: repeats line %d, a %s event of step %d", name, n, before, e.Kind, e.Step)
	default:
		r.more++
	}
	return again
}

// String says which lines are repeated; empty where none is.
func (r *doubled) String() string {
	if r.more > 0 {
		return fmt.Sprintf("%s; so do %d more lines", r.first, r.more)
	}
	return r.first
}

// once reports whether what an event records happens once at most, so that two that
// are equal are one.
func (e *Event) once() bool {
	switch e.Kind {
	case KindComm:
		return e.Text == "" // one that failed has the number of the next
	case KindDigest:
		return e.What != WorkerGrad
	case KindSpan, KindTokens, KindScalar, KindChanged, KindUnmoved, KindMemory, KindTap, KindResume:
		return true
	}
	return false
}
