package protocol

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Call is one operation as one rank called it, without its buffers: what the
// ranks of a group compare, and what errors say. It holds values alone, so
// that it means the same in another process.
type Call struct {
	Op         string
	Count      int64 // as in Record
	Bounds     []int
	Reduction  kernels.Op
	Peer       int // root, or the other rank of a message, in the group; else -1
	Seq        uint64
	Color, Key int   // of a split
	Invalid    error // what is wrong with the arguments, or nil
}

// Place is where a rank stands in its group, and the memory of its tensors: what
// arguments are checked against.
type Place struct {
	Rank  int   // in the group
	Ranks []int // of the group, in the world
	Mem   kernels.Memory
}

// The calls of the operations, their arguments checked.

// AllReduce is the call of an all-reduce of x.
func (Place) AllReduce(x kernels.Tensor, op kernels.Op) Call {
	h := Call{Op: names.OpAllReduce, Count: int64(x.Len()), Reduction: op, Peer: -1}
	h.requireTensor("x", x)
	h.requireReduction()
	return h
}

// ReduceScatter is the call of a reduce-scatter.
func (p Place) ReduceScatter(dst, src kernels.Tensor, bounds []int, op kernels.Op) Call {
	h := Call{Op: names.OpReduceScatter, Count: int64(src.Len()), Bounds: bounds, Reduction: op, Peer: -1}
	h.requireReduction()
	h.requireParts(p, "src", src, "dst", dst)
	return h
}

// AllGather is the call of an all-gather.
func (p Place) AllGather(dst, src kernels.Tensor, bounds []int) Call {
	h := Call{Op: names.OpAllGather, Count: int64(dst.Len()), Bounds: bounds, Peer: -1}
	h.requireParts(p, "dst", dst, "src", src)
	return h
}

// Broadcast is the call of a broadcast from root.
func (p Place) Broadcast(x kernels.Tensor, root int) Call {
	h := Call{Op: names.OpBroadcast, Count: int64(x.Len()), Peer: root}
	h.requireTensor("x", x)
	if root < 0 || root >= len(p.Ranks) {
		h.refuse("root %d: must lie in [0,%d)", root, len(p.Ranks))
	}
	return h
}

// message is the header of one side of a message: op is send or recv.
func (p Place) Message(op string, x kernels.Tensor, peer int) Call {
	h := Call{Op: op, Count: int64(x.Len()), Peer: peer}
	h.requireTensor("x", x)
	switch {
	case peer < 0 || peer >= len(p.Ranks):
		h.refuse("rank %d: must lie in [0,%d)", peer, len(p.Ranks))
	case peer == p.Rank:
		h.refuse("rank %d is this rank itself", peer)
	}
	return h
}

// AllReduceInt is the call of an all-reduce of integers.
func (Place) AllReduceInt(x []uint64, op kernels.Op) Call {
	h := Call{Op: names.OpAllReduceInt, Count: int64(len(x)), Reduction: op, Peer: -1}
	h.requireReduction()
	return h
}

// AllGatherBytes is the call of a gather of bytes.
func (Place) AllGatherBytes(b []byte) Call {
	return Call{Op: names.OpAllGatherBytes, Count: int64(len(b)), Peer: -1}
}

// Barrier is the call of a barrier.
func (Place) Barrier() Call { return Call{Op: names.OpBarrier, Peer: -1} }

// Split is the call of a split.
func (Place) Split(color, key int) Call {
	return Call{Op: names.OpSplit, Color: color, Key: key, Peer: -1}
}

// refuse keeps the first broken rule of an operation's arguments.
func (h *Call) refuse(format string, args ...any) {
	if h.Invalid == nil {
		h.Invalid = fmt.Errorf("%w: "+format, append([]any{ErrArgument}, args...)...)
	}
}

// requireTensor refuses tensors whose elements do not lie side by side.
func (h *Call) requireTensor(name string, t kernels.Tensor) {
	if !t.Contiguous() {
		h.refuse("%s is not contiguous: %s", name, t)
	}
}

// requireReduction refuses unknown reductions.
func (h *Call) requireReduction() {
	if h.Reduction != kernels.Sum && h.Reduction != kernels.Max {
		h.refuse("reduction %d is unknown", h.Reduction)
	}
}

// requireBounds fills nil bounds and refuses wrong ones.
func (h *Call) requireBounds(size int) {
	b, err := shard.CheckBounds(h.Bounds, int(h.Count), size)
	if err != nil {
		h.refuse("%v", err)
		return
	}
	h.Bounds = b
}

// requireParts checks a whole vector, its bounds, and this rank's part of it,
// which lies in its Place in the whole or elsewhere.
func (h *Call) requireParts(p Place, wholeName string, whole kernels.Tensor, partName string, part kernels.Tensor) {
	h.requireTensor(wholeName, whole)
	h.requireTensor(partName, part)
	h.requireBounds(len(p.Ranks))
	if h.Invalid != nil {
		return
	}
	lo, hi, me := h.Bounds[p.Rank], h.Bounds[p.Rank+1], p.Ranks[p.Rank]
	if part.Len() != hi-lo {
		h.refuse("%s has %d elements, rank %d's part of %s is [%d,%d)", partName, part.Len(), me, wholeName, lo, hi)
		return
	}
	if part.Len() == 0 {
		return
	}
	own, is := p.Mem.Span(whole.Range(lo, hi)), p.Mem.Span(part)
	if own != is && p.Mem.Span(whole).Overlaps(is) {
		h.refuse("%s overlaps %s but is not rank %d's part of it", partName, wholeName, me)
	}
}

// IsMessage reports whether the operation is one side of a message.
func (h *Call) IsMessage() bool { return h.Op == names.OpSend || h.Op == names.OpRecv }

// Reduces reports whether the operation has a reduction.
func (h *Call) Reduces() bool {
	return h.Op == names.OpAllReduce || h.Op == names.OpReduceScatter || h.Op == names.OpAllReduceInt
}

// Fits reports whether two ranks called the same collective.
func (h *Call) Fits(o *Call) bool {
	if h.Op != o.Op {
		return false
	}
	if h.free() {
		return true
	}
	return h.Count == o.Count && h.Reduction == o.Reduction && h.Peer == o.Peer && slices.Equal(h.Bounds, o.Bounds)
}

// free reports whether ranks may call the operation with other lengths.
func (h *Call) free() bool { return h.Op == names.OpAllGatherBytes }

// PeerIn is the operation's peer in the world, -1 where it has none.
func (h *Call) PeerIn(ranks []int) int {
	if h.Peer < 0 || h.Peer >= len(ranks) {
		return -1
	}
	return ranks[h.Peer]
}

// Describe is the operation in words; ranks are the group's world ranks.
func (h *Call) Describe(ranks []int) string {
	var s strings.Builder
	s.WriteString(h.Op)
	if h.Op != names.OpBarrier && h.Op != names.OpSplit && h.Op != names.OpAllGatherBytes {
		fmt.Fprintf(&s, " of %d elements", h.Count)
	}
	if h.Reduces() {
		fmt.Fprintf(&s, " (%s)", h.Reduction)
	}
	if h.Bounds != nil {
		fmt.Fprintf(&s, " at %v", h.Bounds)
	}
	if peer := h.PeerIn(ranks); peer >= 0 {
		word := map[string]string{names.OpSend: "to", names.OpRecv: "from", names.OpBroadcast: "from"}[h.Op]
		fmt.Fprintf(&s, " %s rank %d", word, peer)
	}
	return s.String()
}

// Said is "rank 2 called barrier".
func (h *Call) Said(ranks []int, rank int) string {
	return fmt.Sprintf("rank %d called %s", ranks[rank], h.Describe(ranks))
}
