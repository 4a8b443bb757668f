package train_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// leaving leaves out, on one rank and in one step, the operations that where
// selects.
type leaving struct {
	comm.Communicator
	where func(op string, l comm.Label) bool
}

func (c leaving) out(ctx context.Context, op string) bool { return c.where(op, comm.LabelOf(ctx)) }

func (c leaving) AllReduceInt(ctx context.Context, x []uint64, op kernels.Op) error {
	if c.out(ctx, names.OpAllReduceInt) {
		return nil
	}
	return c.Communicator.AllReduceInt(ctx, x, op)
}

func (c leaving) AllReduce(ctx context.Context, x kernels.Tensor, op kernels.Op) error {
	if c.out(ctx, names.OpAllReduce) {
		return nil
	}
	return c.Communicator.AllReduce(ctx, x, op)
}

func (c leaving) Send(ctx context.Context, x kernels.Tensor, to int) error {
	if c.out(ctx, names.OpSend) {
		return nil
	}
	return c.Communicator.Send(ctx, x, to)
}

// A rank that leaves an operation out ends the run at once, whatever the deadline,
// and is named with what it does instead.
func TestRankThatLeavesAnOperationOutIsNamed(t *testing.T) {
	norm := func(op string, l comm.Label) bool {
		return op == names.OpAllReduceInt && l.Tensor == trace.Norm && l.Step == 1
	}
	for _, c := range []struct {
		plan  string
		rank  int
		where func(op string, l comm.Label) bool
		says  []string
	}{
		{"dp=4", 2, norm, []string{"rank 2 did not come to all-reduce-int of norm", "step 1), in which ranks 0, 1, 3 wait; rank 2 waits in all-gather-bytes of "}},
		{"dp=2,tp=2,zero=3", 1, norm, []string{"rank 1 did not come to all-reduce-int of norm"}},
		{"dp=4", 0, func(op string, l comm.Label) bool { return op == names.OpAllReduce && l.Overlap && l.Step == 1 },
			[]string{"rank 0 did not come to all-reduce of ", "beside the computation), in which ranks 1, 2, 3 wait; rank 0 waits in "}},
		{"pp=2", 0, func(op string, l comm.Label) bool { return op == names.OpSend && l.Step == 1 }, []string{"rank 0 called recv", "rank 1 called recv"}},
		{"dp=2,pp=2", 0, func(op string, l comm.Label) bool { return op == names.OpSend && l.Step == 1 }, []string{"rank 0 called recv"}},
	} {
		parts := plain()
		parts.Deadline = time.Hour
		parts.Comm = func(rank int, _ names.Axis, w comm.Communicator) comm.Communicator {
			if rank != c.rank {
				return w
			}
			return leaving{w, c.where}
		}
		begun := time.Now()
		_, err := run(t, t.Context(), small(t, "nano", c.plan), parts)
		says(t, err, c.says...)
		if !errors.Is(err, comm.ErrDeadlock) && !errors.Is(err, comm.ErrMismatch) || time.Since(begun) > 10*time.Second {
			t.Errorf("%s: after %v: %v", c.plan, time.Since(begun), err)
		}
		if !errors.Is(err, comm.ErrMismatch) && !strings.HasPrefix(fmt.Sprint(err), fmt.Sprintf("rank %d: ", c.rank)) {
			t.Errorf("%s: another rank than %d is named first: %v", c.plan, c.rank, err)
		}
	}
}
