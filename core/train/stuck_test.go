package train_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
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
			[]string{"rank 0 did not come to all-reduce of ", "beside the computation), in which ranks 1, 2, 3 wait with their queues; rank 0 waits in "}},
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

// panics is a backend whose calls number from on, of one kernel, panic.
type panics struct {
	kernels.Backend
	kernel string
	fault  func()
	count  *atomic.Int64
	from   int64
}

func (b panics) hit(kernel string) {
	if kernel == b.kernel && b.count.Add(1) > b.from {
		b.fault()
	}
}

func (b panics) SwiGLU(h, z, u kernels.Tensor) {
	b.hit("forward")
	b.Backend.SwiGLU(h, z, u)
}

func (b panics) SwiGLUGrad(dz, du, dh, z, u kernels.Tensor) {
	b.hit("backward")
	b.Backend.SwiGLUGrad(dz, du, dh, z, u)
}

func (b panics) Reduce(dst, src []kernels.Tensor, op kernels.Op) {
	b.hit("reduction")
	b.Backend.Reduce(dst, src, op)
}

func (b panics) AdamW(w, m, v, g kernels.Tensor, p kernels.AdamWParams) {
	b.hit("update")
	b.Backend.AdamW(w, m, v, g, p)
}

// A panic of one rank, wherever it is, ends its peers at once: the error is that
// rank's, and names step, operation and the functions.
func TestPanicOfOneRankEndsItsPeers(t *testing.T) {
	var nowhere []int
	var nobody *panics
	faults := map[string]func(){
		"index out of range":           func() { nowhere[2]++ },
		"nil pointer dereference":      func() { nobody.from++ },
		"panic: kernels: planted, in ": func() { panic("kernels: planted") },
	}
	for _, c := range []struct{ plan, kernel, says string }{
		{"dp=4", "forward", "rank 2: step 1: Forward of micro-batch "},
		{"dp=4", "backward", "rank 2: step 1: Backward of micro-batch "},
		{"dp=4", "reduction", "beside the computation: panic: "},
		{"dp=4", "update", "rank 2: step 1: panic: "},
		{"dp=2,tp=2,zero=3", "forward", "rank 2: step "},
		{"dp=2,pp=2", "backward", "rank 2: step "},
	} {
		for name, fault := range faults {
			if c.kernel != "forward" && name != "nil pointer dereference" {
				continue // how one place is guarded does not depend on the panic
			}
			var count atomic.Int64
			b := panics{kernel: c.kernel, fault: fault, count: &count}
			cfg := small(t, "nano", c.plan)
			perStep := func() int64 { // of the rank that will be broken
				on := plain()
				on.Backend = func(r int) (kernels.Backend, error) {
					if r != 2 {
						return ref.New[float32](), nil
					}
					whole := b
					whole.Backend, whole.from = ref.New[float32](), 1<<40
					return whole, nil
				}
				if _, err := run(t, t.Context(), cfg, on); err != nil {
					t.Fatal(err)
				}
				return count.Swap(0) / int64(cfg.Steps)
			}()
			parts := plain()
			parts.Deadline = time.Hour
			parts.Backend = func(r int) (kernels.Backend, error) {
				if r != 2 {
					return ref.New[float32](), nil
				}
				one := b
				one.Backend, one.from = ref.New[float32](), perStep
				return one, nil
			}
			begun := time.Now()
			out, err := run(t, t.Context(), cfg, parts)
			for e := range out.History.All {
				if strings.Contains(e.Text, comm.ErrDeadlock.Error()) {
					t.Errorf("%s, %s: rank %d was told of a deadlock instead: %s", c.plan, c.kernel, e.Rank, e.Text)
				}
			}
			says(t, err, "rank 2: ", c.says, name, "(stuck_test.go:", "train_test.panics.")
			if time.Since(begun) > 10*time.Second || strings.Contains(fmt.Sprint(err), "\n") {
				t.Errorf("%s, %s: after %v: %v", c.plan, c.kernel, time.Since(begun), err)
			}
			if !strings.HasPrefix(fmt.Sprint(err), "rank 2: ") {
				t.Errorf("%s, %s: the first cause is rank 2's: %v", c.plan, c.kernel, err)
			}
		}
	}
}

// closing tells when its rank has ended.
type closing struct {
	comm.Communicator
	ended chan struct{}
}

func (c closing) Close() error {
	close(c.ended)
	return c.Communicator.Close()
}

// A rank that breaks down does not wait for peers to come to what its queue began.
func TestPanicDoesNotWaitForPeers(t *testing.T) {
	ended := make(chan struct{})
	var forward, backward atomic.Int64
	cfg := small(t, "nano", "dp=4")
	parts := plain()
	parts.Deadline = time.Hour
	parts.World = func(_ context.Context, size int, be func(int) kernels.Backend, o comm.Options) ([]comm.Communicator, error) {
		ends, err := comm.NewLocal(size, be, o)
		ends[2] = closing{ends[2], ended}
		return ends, err
	}
	var late atomic.Bool
	parts.Backend = func(r int) (kernels.Backend, error) {
		if r == 2 {
			micros := int64(cfg.Plan.Workers(cfg.Model) / cfg.Plan.DP)
			return panics{ref.New[float32](), "backward", func() { panic("planted") }, &backward, (micros - 1) * int64(cfg.Model.Layers)}, nil
		}
		return panics{ref.New[float32](), "forward", func() {
			select {
			case <-ended:
			case <-time.After(5 * time.Second):
				late.Store(true)
			}
		}, &forward, 0}, nil
	}
	_, err := run(t, t.Context(), cfg, parts)
	says(t, err, "rank 2: step 0: Backward of micro-batch ", "panic: planted")
	if late.Load() {
		t.Error("rank 2 waited for its peers")
	}
}
