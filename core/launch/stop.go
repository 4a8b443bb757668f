package launch

import "sync"

// Stop lets the ranks of this process end a run early, all after the same step:
// the first to ask about a step decides for all. Its Ask is what
// train.Checkpoints.Stop wants.
type Stop struct {
	// Wanted reports whether the run is to end.
	Wanted func() bool

	mu      sync.Mutex
	decided int  // steps about which somebody asked: all below
	ended   bool // the last of them ends the run
}

// Ask reports whether the run ends after the step.
func (s *Stop) Ask(step int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended && step >= s.decided {
		s.decided, s.ended = step+1, s.Wanted()
	}
	return s.ended && step+1 >= s.decided
}

// After is the number of steps after which the run ended early; ok is false where
// it did not.
func (s *Stop) After() (steps int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.decided, s.ended
}
