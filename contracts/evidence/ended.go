package evidence

import (
	"slices"

	"github.com/lockstep-ml/lockstep/core/trace"
)

// Ended reports whether a rank recorded its end. What is missing of one that did not
// is no evidence that it was not done: the run was stopped, or what it recorded was
// cut off.
func (r *Run) Ended(rank int) bool {
	return slices.ContainsFunc(r.Ranks[rank], func(e trace.Event) bool { return e.Kind == trace.KindEnd })
}
