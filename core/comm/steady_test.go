package comm_test

import (
	"context"
	"testing"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// still is a communicator whose operations do nothing and move nothing.
type still struct{ comm.Communicator }

func (still) Ranks() []int { return []int{0, 1} }
func (still) Rank() int    { return 0 }
func (still) Size() int    { return 2 }
func (still) Moved() int64 { return 0 }

func (still) AllReduce(context.Context, kernels.Tensor, kernels.Op) error     { return nil }
func (still) AllReduceInt(context.Context, []uint64, kernels.Op) error        { return nil }
func (still) Broadcast(context.Context, kernels.Tensor, int) error            { return nil }
func (still) Send(context.Context, kernels.Tensor, int) error                 { return nil }
func (still) Recv(context.Context, kernels.Tensor, int) error                 { return nil }
func (still) Barrier(context.Context) error                                   { return nil }
func (still) AllGather(_ context.Context, _, _ kernels.Tensor, _ []int) error { return nil }
func (still) ReduceScatter(_ context.Context, _, _ kernels.Tensor, _ []int, _ kernels.Op) error {
	return nil
}

// Recording allocates nothing, operation after operation.
func TestRecordingDoesNotAllocate(t *testing.T) {
	buf, err := ref.New[float32]().Alloc(4)
	if err != nil {
		t.Fatal(err)
	}
	x, n, ctx := kernels.Flat(buf), []uint64{1}, t.Context()
	seen := 0
	c := comm.Recorded(still{}, func(comm.Record) { seen++ })
	for name, f := range map[string]func() error{
		"all-reduce":     func() error { return c.AllReduce(ctx, x, kernels.Sum) },
		"all-reduce-int": func() error { return c.AllReduceInt(ctx, n, kernels.Sum) },
		"reduce-scatter": func() error { return c.ReduceScatter(ctx, x.Range(0, 2), x, nil, kernels.Sum) },
		"all-gather":     func() error { return c.AllGather(ctx, x, x.Range(0, 2), nil) },
		"broadcast":      func() error { return c.Broadcast(ctx, x, 1) },
		"send":           func() error { return c.Send(ctx, x, 1) },
		"recv":           func() error { return c.Recv(ctx, x, 1) },
		"barrier":        func() error { return c.Barrier(ctx) },
	} {
		before := seen
		if got := testing.AllocsPerRun(20, func() {
			if err := f(); err != nil {
				t.Error(err)
			}
		}); got != 0 {
			t.Errorf("%s: %v allocations", name, got)
		}
		if seen-before != 21 { // AllocsPerRun warms up once
			t.Errorf("%s: %d records of 21 operations", name, seen-before)
		}
	}
}
