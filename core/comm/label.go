package comm

import (
	"context"

	"github.com/lockstep-ml/lockstep/core/names"
)

// Label says what an operation is for: which group it runs on, and which
// elements [Lo, Hi) of which tensor it moves. It changes nothing; records carry
// it.
type Label struct {
	Group  names.Axis
	Tensor string
	Lo, Hi int64
	Step   int // optimizer step; -1 before the first
	// Overlap marks the group's second communicator, which works beside the
	// computation and numbers its operations by itself.
	Overlap bool
}

// labelKey is the context key of a Label.
type labelKey struct{}

// WithLabel returns a context whose operations are recorded under l.
func WithLabel(ctx context.Context, l Label) context.Context {
	return context.WithValue(ctx, labelKey{}, &l)
}

// LabelOf returns the label of ctx, or the zero Label.
func LabelOf(ctx context.Context) Label {
	if l, _ := ctx.Value(labelKey{}).(*Label); l != nil {
		return *l
	}
	return Label{}
}

// Labels labels operations that follow one another, one at a time, without a
// new context for each. The zero value is ready.
type Labels struct {
	parent, ctx context.Context
	label       Label
}

// On is WithLabel, for one operation: the next call of On may change the label
// of the context that this one returned. ctx must be comparable, as all contexts
// of package context are.
func (s *Labels) On(ctx context.Context, l Label) context.Context {
	s.label = l
	if s.ctx == nil || s.parent != ctx {
		s.parent, s.ctx = ctx, context.WithValue(ctx, labelKey{}, &s.label)
	}
	return s.ctx
}
