package comm

import (
	"context"

	"github.com/lockstep-ml/lockstep/kernels"
)

// call is one operation of one rank: what peers compare, and the buffers that
// they read and write in place.
type call struct {
	header

	dst, src kernels.Tensor
	ints     []uint64
	bytes    []byte

	ctx    context.Context // of the operation
	actor  *actor          // who waits in it, where somebody watches
	moved  int64           // as in Record
	served bool            // message: the other side has come

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
func (c *local) begin(h header) *call {
	k := c.idle.Swap(nil)
	if k == nil {
		k = &call{workspace: &workspace{wake: make(chan struct{}, 1)}}
	}
	*k = call{header: h, workspace: k.workspace}
	return k
}

// end keeps what the operation moved. Of one that failed peers may still hold
// the call: it is not used again.
func (c *local) end(k *call, err error) {
	c.moved.Store(k.moved)
	if err == nil {
		c.idle.Store(k)
	}
}

// touch counts elements of a peer's buffer that this rank reads or writes.
func (k *call) touch(peer bool, elements int) {
	if peer {
		k.moved += 4 * int64(elements)
	}
}
