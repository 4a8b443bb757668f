package comm

import (
	"context"

	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/kernels"
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

// Record describes one operation that has ended on one rank.
type Record struct {
	Op   string // one of the Op constants
	Rank int    // this rank, in the world
	// Group holds the world ranks of the group; it is shared, do not modify it.
	Group []int
	// Seq counts the collectives of the group, or for Send and Recv the messages
	// from the sender to the receiver, from 0.
	Seq uint64
	// Count is the number of elements: the whole vector's for AllReduce,
	// ReduceScatter (src) and AllGather (dst), own bytes for AllGatherBytes.
	Count int64
	// Bytes is this rank's share of the bytes on the wire (see ShareBytes).
	Bytes int64
	// Moved is the number of bytes in peers' tensors that this rank read or wrote,
	// counted where they are moved. Over the ranks of a group it adds up to what
	// Bytes does where the algorithm moves what names.WireBytes says: the star's
	// reduce-scatter moves more.
	Moved int64
	// Peer is the other rank of Send and Recv, or the root of Broadcast, in the
	// world; -1 for other operations.
	Peer      int
	Reduction kernels.Op
	Label     Label
	Err       error // nil, or what the operation returned
}

// ShareBytes is the share of the group's i-th rank in WireBytes: the total is
// spread evenly, the first ranks take the remainder, so shares add up exactly.
// A message counts on its sender alone. part must be valid.
func ShareBytes(op string, count int64, part shard.Part) int64 {
	total := names.WireBytes(op, count, part.Size)
	if op == names.OpSend {
		return total
	}
	size := int64(part.Size)
	share := total / size
	if int64(part.Index) < total%size {
		share++
	}
	return share
}
