package launch

import (
	"errors"
	"fmt"
	"sync"

	"github.com/lockstep-ml/lockstep/core/comm"
)

// Failure is what ended a rank.
type Failure struct {
	Rank int
	Err  error
}

// Error names the rank and what ended it.
func (f *Failure) Error() string { return fmt.Sprintf("rank %d: %v", f.Rank, f.Err) }

// Unwrap is what ended the rank.
func (f *Failure) Unwrap() error { return f.Err }

// BackendError is a rank that has no backend: no run with it can begin.
type BackendError struct {
	Rank int
	Err  error
}

// Error names the rank and why.
func (e *BackendError) Error() string { return fmt.Sprintf("backend of rank %d: %v", e.Rank, e.Err) }

// Unwrap is why.
func (e *BackendError) Unwrap() error { return e.Err }

// failures are those of the ranks of a run, in their order.
type failures struct {
	mu  sync.Mutex
	all []*Failure
}

// add keeps the failure of a rank, and gives it as what ends the others.
func (f *failures) add(rank int, err error) *Failure {
	one := &Failure{rank, err}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, one)
	return one
}

// Cause is the failure that is a consequence of none of the others: the first of
// them, where there are several or none. nil means that no rank failed. Those that
// count as consequences, and of which rank, because says.
func Cause[F any](all []F, rank, because func(F) int) (cause F, failed bool) {
	has := map[int]bool{}
	for _, f := range all {
		has[rank(f)] = true
	}
	for _, f := range all {
		if by := because(f); by < 0 || by == rank(f) || !has[by] {
			return f, true
		}
	}
	if len(all) > 0 {
		return all[0], true
	}
	return cause, false
}

// Because is the rank whose failure, or absence, this one is a consequence of; -1
// where it is of none.
func (f *Failure) Because() int {
	var told *Failure // what ended its context
	if errors.As(f.Err, &told) && told.Rank != f.Rank {
		return told.Rank
	}
	var e *comm.Error
	if errors.As(f.Err, &e) && e.Peer >= 0 && e.Peer != f.Rank {
		return e.Peer
	}
	return -1
}

// cause is the failure that the others follow from; nil means that no rank failed.
func (f *failures) cause() error {
	one, failed := Cause(f.all, func(f *Failure) int { return f.Rank }, (*Failure).Because)
	if !failed {
		return nil
	}
	return one
}
