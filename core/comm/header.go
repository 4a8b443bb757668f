package comm

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/kernels"
)

// header is one operation as one rank called it, without its buffers: what the
// ranks of a group compare, and what errors say. It holds values alone, so
// that it means the same in another process.
type header struct {
	op         string
	count      int64 // as in Record
	bounds     []int
	reduction  kernels.Op
	peer       int // root, or the other rank of a message, in the group; else -1
	seq        uint64
	color, key int   // of a split
	invalid    error // what is wrong with the arguments, or nil
}

// place is where a rank stands in its group, and the memory of its tensors: what
// arguments are checked against.
type place struct {
	rank  int   // in the group
	ranks []int // of the group, in the world
	mem   kernels.Memory
}

// The headers of the operations, their arguments checked.

func (place) allReduce(x kernels.Tensor, op kernels.Op) header {
	h := header{op: names.OpAllReduce, count: int64(x.Len()), reduction: op, peer: -1}
	h.requireTensor("x", x)
	h.requireReduction()
	return h
}

func (p place) reduceScatter(dst, src kernels.Tensor, bounds []int, op kernels.Op) header {
	h := header{op: names.OpReduceScatter, count: int64(src.Len()), bounds: bounds, reduction: op, peer: -1}
	h.requireReduction()
	h.requireParts(p, "src", src, "dst", dst)
	return h
}

func (p place) allGather(dst, src kernels.Tensor, bounds []int) header {
	h := header{op: names.OpAllGather, count: int64(dst.Len()), bounds: bounds, peer: -1}
	h.requireParts(p, "dst", dst, "src", src)
	return h
}

func (p place) broadcast(x kernels.Tensor, root int) header {
	h := header{op: names.OpBroadcast, count: int64(x.Len()), peer: root}
	h.requireTensor("x", x)
	if root < 0 || root >= len(p.ranks) {
		h.refuse("root %d: must lie in [0,%d)", root, len(p.ranks))
	}
	return h
}

// message is the header of one side of a message: op is send or recv.
func (p place) message(op string, x kernels.Tensor, peer int) header {
	h := header{op: op, count: int64(x.Len()), peer: peer}
	h.requireTensor("x", x)
	switch {
	case peer < 0 || peer >= len(p.ranks):
		h.refuse("rank %d: must lie in [0,%d)", peer, len(p.ranks))
	case peer == p.rank:
		h.refuse("rank %d is this rank itself", peer)
	}
	return h
}

func (place) allReduceInt(x []uint64, op kernels.Op) header {
	h := header{op: names.OpAllReduceInt, count: int64(len(x)), reduction: op, peer: -1}
	h.requireReduction()
	return h
}

func (place) allGatherBytes(b []byte) header {
	return header{op: names.OpAllGatherBytes, count: int64(len(b)), peer: -1}
}

func (place) barrier() header { return header{op: names.OpBarrier, peer: -1} }

func (place) split(color, key int) header {
	return header{op: names.OpSplit, color: color, key: key, peer: -1}
}

// refuse keeps the first broken rule of an operation's arguments.
func (h *header) refuse(format string, args ...any) {
	if h.invalid == nil {
		h.invalid = fmt.Errorf("%w: "+format, append([]any{ErrArgument}, args...)...)
	}
}

// requireTensor refuses tensors whose elements do not lie side by side.
func (h *header) requireTensor(name string, t kernels.Tensor) {
	if !t.Contiguous() {
		h.refuse("%s is not contiguous: %s", name, t)
	}
}

// requireReduction refuses unknown reductions.
func (h *header) requireReduction() {
	if h.reduction != kernels.Sum && h.reduction != kernels.Max {
		h.refuse("reduction %d is unknown", h.reduction)
	}
}

// requireBounds fills nil bounds and refuses wrong ones.
func (h *header) requireBounds(size int) {
	b, err := shard.CheckBounds(h.bounds, int(h.count), size)
	if err != nil {
		h.refuse("%v", err)
		return
	}
	h.bounds = b
}

// requireParts checks a whole vector, its bounds, and this rank's part of it,
// which lies in its place in the whole or elsewhere.
func (h *header) requireParts(p place, wholeName string, whole kernels.Tensor, partName string, part kernels.Tensor) {
	h.requireTensor(wholeName, whole)
	h.requireTensor(partName, part)
	h.requireBounds(len(p.ranks))
	if h.invalid != nil {
		return
	}
	lo, hi, me := h.bounds[p.rank], h.bounds[p.rank+1], p.ranks[p.rank]
	if part.Len() != hi-lo {
		h.refuse("%s has %d elements, rank %d's part of %s is [%d,%d)", partName, part.Len(), me, wholeName, lo, hi)
		return
	}
	if part.Len() == 0 {
		return
	}
	own, is := p.mem.Span(whole.Range(lo, hi)), p.mem.Span(part)
	if own != is && p.mem.Span(whole).Overlaps(is) {
		h.refuse("%s overlaps %s but is not rank %d's part of it", partName, wholeName, me)
	}
}

// isMessage reports whether the operation is one side of a message.
func (h *header) isMessage() bool { return h.op == names.OpSend || h.op == names.OpRecv }

// reduces reports whether the operation has a reduction.
func (h *header) reduces() bool {
	return h.op == names.OpAllReduce || h.op == names.OpReduceScatter || h.op == names.OpAllReduceInt
}

// fits reports whether two ranks called the same collective.
func (h *header) fits(o *header) bool {
	if h.op != o.op {
		return false
	}
	if h.op == names.OpAllGatherBytes {
		return true // lengths may differ
	}
	return h.count == o.count && h.reduction == o.reduction && h.peer == o.peer && slices.Equal(h.bounds, o.bounds)
}

// peerIn is the operation's peer in the world, -1 where it has none.
func (h *header) peerIn(ranks []int) int {
	if h.peer < 0 || h.peer >= len(ranks) {
		return -1
	}
	return ranks[h.peer]
}

// describe is the operation in words; ranks are the group's world ranks.
func (h *header) describe(ranks []int) string {
	var s strings.Builder
	s.WriteString(h.op)
	if h.op != names.OpBarrier && h.op != names.OpSplit && h.op != names.OpAllGatherBytes {
		fmt.Fprintf(&s, " of %d elements", h.count)
	}
	if h.reduces() {
		fmt.Fprintf(&s, " (%s)", h.reduction)
	}
	if h.bounds != nil {
		fmt.Fprintf(&s, " at %v", h.bounds)
	}
	if peer := h.peerIn(ranks); peer >= 0 {
		word := map[string]string{names.OpSend: "to", names.OpRecv: "from", names.OpBroadcast: "from"}[h.op]
		fmt.Fprintf(&s, " %s rank %d", word, peer)
	}
	return s.String()
}

// said is "rank 2 called barrier".
func (h *header) said(ranks []int, rank int) string {
	return fmt.Sprintf("rank %d called %s", ranks[rank], h.describe(ranks))
}
