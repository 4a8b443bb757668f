package comm

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
)

// call is one operation as one rank called it: what peers compare, and the
// buffers that they read and write in place.
type call struct {
	op        string
	count     int64 // as in Record
	bounds    []int
	reduction kernels.Op
	peer      int // root, or the other rank of a message, in the group; else -1
	seq       uint64
	invalid   error // what is wrong with the arguments, or nil

	dst, src   kernels.Tensor
	ints       []uint64
	bytes      []byte
	color, key int

	moved  int64 // as in Record
	served bool  // message: the other side has come

	*workspace
}

// workspace is what a rank's operations need, one after another. Nothing in it
// is used by a peer once the operation has ended well.
type workspace struct {
	alarm   alarm
	wake    chan struct{} // of a collective: it has started; all are done
	out, in post          // one message at a time each way
	parts   []kernels.Tensor
	whole   [1]kernels.Tensor
}

// begin starts the call of an operation in the workspace of the last one, or a
// new one where that is in use (by mistake: admit will say so) or failed.
func (c *local) begin(op string) *call {
	k := c.idle.Swap(nil)
	if k == nil {
		k = &call{workspace: &workspace{wake: make(chan struct{}, 1)}}
	}
	*k = call{op: op, peer: -1, workspace: k.workspace}
	return k
}

// end reports the end of an operation. Of one that failed peers may still hold
// the call: it is not used again.
func (c *local) end(ctx context.Context, k *call, err error) {
	c.observe(ctx, k, err)
	if err == nil {
		c.idle.Store(k)
	}
}

// isMessage reports whether the call is one side of a message.
func (k *call) isMessage() bool { return k.op == names.OpSend || k.op == names.OpRecv }

// touch counts elements of a peer's buffer that this rank reads or writes.
func (k *call) touch(peer bool, elements int) {
	if peer {
		k.moved += 4 * int64(elements)
	}
}

// reduces reports whether the operation has a reduction.
func (k *call) reduces() bool {
	return k.op == names.OpAllReduce || k.op == names.OpReduceScatter || k.op == names.OpAllReduceInt
}

// fits reports whether two ranks' calls are the same collective.
func (k *call) fits(o *call) bool {
	if k.op != o.op {
		return false
	}
	if k.op == names.OpAllGatherBytes {
		return true // lengths may differ
	}
	return k.count == o.count && k.reduction == o.reduction && k.peer == o.peer && slices.Equal(k.bounds, o.bounds)
}

// peerIn is the call's peer in the world, -1 where it has none.
func (k *call) peerIn(ranks []int) int {
	if k.peer < 0 || k.peer >= len(ranks) {
		return -1
	}
	return ranks[k.peer]
}

// describe is the call in words; ranks are the group's world ranks.
func (k *call) describe(ranks []int) string {
	var s strings.Builder
	s.WriteString(k.op)
	if k.op != names.OpBarrier && k.op != names.OpSplit && k.op != names.OpAllGatherBytes {
		fmt.Fprintf(&s, " of %d elements", k.count)
	}
	if k.reduces() {
		fmt.Fprintf(&s, " (%s)", k.reduction)
	}
	if k.bounds != nil {
		fmt.Fprintf(&s, " at %v", k.bounds)
	}
	if peer := k.peerIn(ranks); peer >= 0 {
		word := map[string]string{names.OpSend: "to", names.OpRecv: "from", names.OpBroadcast: "from"}[k.op]
		fmt.Fprintf(&s, " %s rank %d", word, peer)
	}
	return s.String()
}

// refuse keeps the first broken rule of a call's arguments.
func (k *call) refuse(format string, args ...any) {
	if k.invalid == nil {
		k.invalid = fmt.Errorf("%w: "+format, append([]any{ErrArgument}, args...)...)
	}
}

// requireTensor refuses tensors whose elements do not lie side by side.
func (k *call) requireTensor(name string, t kernels.Tensor) {
	if !t.Contiguous() {
		k.refuse("%s is not contiguous: %s", name, t)
	}
}

// requireReduction refuses unknown reductions.
func (k *call) requireReduction() {
	if k.reduction != kernels.Sum && k.reduction != kernels.Max {
		k.refuse("reduction %d is unknown", k.reduction)
	}
}

// requireBounds fills nil bounds and refuses wrong ones.
func (k *call) requireBounds(size int) {
	b, err := CheckBounds(k.bounds, int(k.count), size)
	if err != nil {
		k.refuse("%v", err)
		return
	}
	k.bounds = b
}
