package suite

import (
	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
)

// sends are the messages to other stages, as their senders see them.
func sends(c *fault.Call) bool { return c.Group == names.PP && c.Op == names.OpSend }

// leftOut leaves out, on one rank, the first call that where selects.
func leftOut(rank int, where func(*fault.Call) bool) fault.Fault {
	return fault.OnCalls(func(c *fault.Call) bool { return c.Rank == rank && c.N == 0 && where(c) }, fault.Skip)
}

// shorter leaves the last element out of one rank's reductions beside the
// computation.
func shorter(rank int) fault.Fault {
	reductions := overlapped(names.OpAllReduce)
	return fault.OnCalls(func(c *fault.Call) bool { return c.Rank == rank && reductions(c) }, func(c *fault.Call) error {
		c.X = c.X.Range(0, c.X.Len()-1)
		return c.Do()
	})
}

// panics makes one rank's forward passes end in an index that is out of range.
func panics(rank int) fault.Fault {
	return fault.OnBackend(rank, func(be kernels.Backend) kernels.Backend { return broken{be} })
}

// broken is a backend with a kernel that panics.
type broken struct{ kernels.Backend }

func (broken) SwiGLU(_, z, _ kernels.Tensor) {
	var rows []int
	rows[z.Rows]++
}
