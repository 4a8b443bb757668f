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

// cause is the failure that is a consequence of none of the others: the first of
// them, where there are several or none. nil means that no rank failed.
func (f *failures) cause() error {
	for _, one := range f.all {
		if !f.follows(one) {
			return one
		}
	}
	if len(f.all) > 0 {
		return f.all[0]
	}
	return nil
}

// follows reports whether a rank failed because another one had, or had not come.
func (f *failures) follows(one *Failure) bool {
	var told *Failure // what ended its context
	if errors.As(one.Err, &told) && told.Rank != one.Rank {
		return true
	}
	var e *comm.Error
	return errors.As(one.Err, &e) && e.Peer >= 0 && e.Peer != one.Rank && f.has(e.Peer)
}

func (f *failures) has(rank int) bool {
	for _, one := range f.all {
		if one.Rank == rank {
			return true
		}
	}
	return false
}
