package evidence

import "github.com/lockstep-ml/lockstep/core/trace"

// Told reports whether a rank's record of a step shows all that it did of a kind: the
// step was finished, and others of the kind are recorded in it. What is not among
// them was then not done; otherwise it may merely not be recorded.
func (r *Run) Told(rank, step int, kind trace.Kind) bool {
	if !r.Finished(rank, step) {
		return false
	}
	for range r.In(step, rank, kind) {
		return true
	}
	return false
}

// Finished reports whether a rank's record of a step goes on to its end.
func (r *Run) Finished(rank, step int) bool {
	_, ended := r.Scalar(rank, step, trace.Counter)
	return ended
}
