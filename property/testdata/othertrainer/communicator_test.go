package othertrainer

import (
	"strings"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/comm/commtest"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
)

func host(int) kernels.Backend { return commtest.Memory{} }

// canonical leaves the sum to the backend, whose Reduce is the tree.
func canonical(be kernels.Backend, dst, src []kernels.Tensor, op kernels.Op) { be.Reduce(dst, src, op) }

// TestCommunicator is all that the author of a communicator has to write.
func TestCommunicator(t *testing.T) {
	commtest.Run(t, func(_ testing.TB, size int) []comm.Communicator { return NewWorld(size, host, canonical) }, host, true)
}

// inRankOrder is the planted bug: it adds ((x0 + x1) + x2) + x3, the order of a
// coordinator. Sums are right to rounding; four ranks have other bits than two.
func inRankOrder(be kernels.Backend, dst, src []kernels.Tensor, op kernels.Op) {
	buf, err := be.Alloc(src[0].Len())
	if err != nil {
		panic(err)
	}
	sum := kernels.Flat(buf)
	be.Reduce([]kernels.Tensor{sum}, src[:1], op)
	for _, x := range src[1:] {
		be.Reduce([]kernels.Tensor{sum}, []kernels.Tensor{sum, x}, op)
	}
	be.Reduce(dst, []kernels.Tensor{sum}, op)
	be.Free(buf)
}

func TestCommunicatorWithABug(t *testing.T) {
	var found findings
	s := commtest.Suite{Backend: host, Canonical: true, Patience: 10 * time.Second,
		Open: func(size int) ([]comm.Communicator, error) { return NewWorld(size, host, inRankOrder), nil }}
	for _, c := range commtest.Checks() {
		if c.Name == "results" {
			c.Run(&found, s)
		}
	}
	if len(found) == 0 || !strings.Contains(found.String(), names.OpAllReduce) {
		t.Errorf("the suite does not see another order of summation: %s", found)
	}
	t.Log(found[0])
}
