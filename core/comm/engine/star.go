//go:build unix

package engine

import (
	"context"

	"github.com/lockstep-ml/lockstep/core/comm/internal/protocol"
	"github.com/lockstep-ml/lockstep/kernels"
)

// star sends everything through rank 0, which adds in rank order.
type star struct{}

func (star) allReduce(ctx context.Context, x *exchange, t kernels.Tensor, op kernels.Op) *protocol.Failure {
	if f := x.center(ctx, t, t, op); f != nil {
		return f
	}
	return x.fromCenter(ctx, func(int) kernels.Tensor { return t }, t)
}

// reduceScatter sums on rank 0, in dst for its own part and in src for those of the
// others.
func (star) reduceScatter(ctx context.Context, x *exchange, dst, src kernels.Tensor, op kernels.Op) *protocol.Failure {
	cut, own := x.call.Bounds[1], dst
	if x.e.rank != 0 {
		own = part(src, x.call.Bounds, 0) // is only sent
	}
	if f := x.center(ctx, own, src.Range(0, cut), op); f != nil {
		return f
	}
	x.next()
	rest := src.Range(cut, src.Len())
	if f := x.center(ctx, rest, rest, op); f != nil {
		return f
	}
	return x.fromCenter(ctx, func(r int) kernels.Tensor { return part(src, x.call.Bounds, r) }, dst)
}

func (star) allGather(ctx context.Context, x *exchange, t kernels.Tensor) *protocol.Failure {
	var err error
	if x.e.rank != 0 {
		err = x.lanes[0].sendAll(x, part(t, x.call.Bounds, x.e.rank))
	}
	for r := 1; x.e.rank == 0 && r < len(x.lanes); r++ {
		err = first(err, x.lanes[r].takeAll(x, part(t, x.call.Bounds, r)))
	}
	if f := x.finish(ctx, err); f != nil {
		return f
	}
	return x.fromCenter(ctx, func(int) kernels.Tensor { return t }, t)
}

func (star) broadcast(ctx context.Context, x *exchange, t kernels.Tensor, root int) *protocol.Failure {
	var err error
	switch {
	case root == 0:
	case x.e.rank == root:
		err = x.lanes[0].sendAll(x, t)
	case x.e.rank == 0:
		err = x.lanes[root].takeAll(x, t)
	}
	if f := x.finish(ctx, err); f != nil {
		return f
	}
	x.next()
	for r := 1; r < len(x.lanes); r++ {
		switch {
		case r == root:
		case x.e.rank == 0:
			err = first(err, x.lanes[r].sendAll(x, t))
		case x.e.rank == r:
			err = first(err, x.lanes[0].takeAll(x, t))
		}
	}
	return x.finish(ctx, err)
}

// center reduces t of all ranks into into, on rank 0.
func (x *exchange) center(ctx context.Context, into, t kernels.Tensor, op kernels.Op) *protocol.Failure {
	var err error
	if x.e.rank != 0 {
		err = x.lanes[0].sendAll(x, t)
	} else {
		var f *fold
		f, err = x.newFold(into, t, op)
		for r := 1; err == nil && r < len(x.lanes); r++ {
			for c := range f.ready {
				err = first(err, x.lanes[r].fold(f, r, c))
			}
		}
		if err == nil {
			f.pairs = true
		}
	}
	return x.finish(ctx, err)
}

// fromCenter gives every rank its tensor, which it keeps in into.
func (x *exchange) fromCenter(ctx context.Context, of func(rank int) kernels.Tensor, into kernels.Tensor) *protocol.Failure {
	if err := x.e.n.be.Sync(); err != nil {
		return x.broken(err)
	}
	x.next()
	var err error
	if x.e.rank != 0 {
		err = x.lanes[0].takeAll(x, into)
	}
	for r := 1; x.e.rank == 0 && r < len(x.lanes); r++ {
		err = first(err, x.lanes[r].sendAll(x, of(r)))
	}
	return x.finish(ctx, err)
}
