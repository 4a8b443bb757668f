package commtest_test

import (
	"context"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/comm/commtest"
	"github.com/lockstep-ml/lockstep/kernels"
)

// mutant is a communicator with a defect; the methods of the embedded one work.
type mutant struct {
	comm.Communicator
	calls int                       // of the operation with the defect
	held  *float32                  // a message kept back
	last  []float32                 // an earlier result
	f     func(m *mutant) overrides // the defect
}

// overrides replaces operations; nil fields work.
type overrides struct {
	allReduce     func(context.Context, kernels.Tensor, kernels.Op) error
	reduceScatter func(ctx context.Context, dst, src kernels.Tensor, bounds []int, op kernels.Op) error
	allGather     func(ctx context.Context, dst, src kernels.Tensor, bounds []int) error
	broadcast     func(context.Context, kernels.Tensor, int) error
	send          func(context.Context, kernels.Tensor, int) error
	barrier       func(context.Context) error
	ints          func(context.Context, []uint64, kernels.Op) error
	gatherBytes   func(context.Context, []byte) ([][]byte, error)
	split         func(ctx context.Context, color, key int) (comm.Communicator, error)
	closeGroup    func() error
}

func (m *mutant) AllReduce(ctx context.Context, x kernels.Tensor, op kernels.Op) error {
	if f := m.f(m).allReduce; f != nil {
		return f(ctx, x, op)
	}
	return m.Communicator.AllReduce(ctx, x, op)
}

func (m *mutant) ReduceScatter(ctx context.Context, dst, src kernels.Tensor, bounds []int, op kernels.Op) error {
	if f := m.f(m).reduceScatter; f != nil {
		return f(ctx, dst, src, bounds, op)
	}
	return m.Communicator.ReduceScatter(ctx, dst, src, bounds, op)
}

func (m *mutant) AllGather(ctx context.Context, dst, src kernels.Tensor, bounds []int) error {
	if f := m.f(m).allGather; f != nil {
		return f(ctx, dst, src, bounds)
	}
	return m.Communicator.AllGather(ctx, dst, src, bounds)
}

func (m *mutant) Broadcast(ctx context.Context, x kernels.Tensor, root int) error {
	if f := m.f(m).broadcast; f != nil {
		return f(ctx, x, root)
	}
	return m.Communicator.Broadcast(ctx, x, root)
}

func (m *mutant) Send(ctx context.Context, x kernels.Tensor, to int) error {
	if f := m.f(m).send; f != nil {
		return f(ctx, x, to)
	}
	return m.Communicator.Send(ctx, x, to)
}

func (m *mutant) Barrier(ctx context.Context) error {
	if f := m.f(m).barrier; f != nil {
		return f(ctx)
	}
	return m.Communicator.Barrier(ctx)
}

func (m *mutant) AllReduceInt(ctx context.Context, x []uint64, op kernels.Op) error {
	if f := m.f(m).ints; f != nil {
		return f(ctx, x, op)
	}
	return m.Communicator.AllReduceInt(ctx, x, op)
}

func (m *mutant) AllGatherBytes(ctx context.Context, b []byte) ([][]byte, error) {
	if f := m.f(m).gatherBytes; f != nil {
		return f(ctx, b)
	}
	return m.Communicator.AllGatherBytes(ctx, b)
}

func (m *mutant) Split(ctx context.Context, color, key int) (comm.Communicator, error) {
	if f := m.f(m).split; f != nil {
		return f(ctx, color, key)
	}
	return m.Communicator.Split(ctx, color, key)
}

func (m *mutant) Close() error {
	if f := m.f(m).closeGroup; f != nil {
		return f()
	}
	return m.Communicator.Close()
}

// read and write reach into a tensor.
func read(t kernels.Tensor) []float32 {
	x := make([]float32, t.Len())
	if err := (commtest.Memory{}).Read(x, t); err != nil {
		panic(err)
	}
	return x
}

func write(t kernels.Tensor, x ...float32) { commtest.Memory{}.Write(t, x) }

// clone is a copy of t in a buffer of its own.
func clone(t kernels.Tensor) kernels.Tensor {
	b, err := commtest.Memory{}.Alloc(t.Len())
	if err != nil {
		panic(err)
	}
	write(kernels.Flat(b), read(t)...)
	return kernels.Flat(b)
}
