//go:build unix

package engine

import (
	"context"

	"github.com/lockstep-ml/lockstep/core/comm/internal/protocol"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/kernels"
)

// ring passes parts to the next rank while it receives from the previous one; the
// order of its sums is that of the in-process ring.
type ring struct{}

func (r ring) allReduce(ctx context.Context, x *exchange, t kernels.Tensor, op kernels.Op) *protocol.Failure {
	bounds := shard.Bounds(t.Len(), len(x.e.ranks))
	if f := x.ringReduce(ctx, part(t, bounds, x.e.rank), t, bounds, op); f != nil {
		return f
	}
	return x.ringGather(ctx, t, bounds)
}

func (ring) reduceScatter(ctx context.Context, x *exchange, dst, src kernels.Tensor, op kernels.Op) *protocol.Failure {
	return x.ringReduce(ctx, dst, src, x.call.Bounds, op)
}

func (ring) allGather(ctx context.Context, x *exchange, t kernels.Tensor) *protocol.Failure {
	return x.ringGather(ctx, t, x.call.Bounds)
}

// broadcast passes the tensor on from rank to rank.
func (ring) broadcast(ctx context.Context, x *exchange, t kernels.Tensor, root int) *protocol.Failure {
	n := len(x.lanes)
	next, previous := (x.e.rank+1)%n, (x.e.rank+n-1)%n
	var err error
	came := 0
	if x.e.rank != root {
		l := &x.lanes[previous]
		err = l.takeAll(x, t)
		for c := range l.in {
			l.in[c].done = func([]byte) { came++ }
		}
	}
	if next != root {
		l := &x.lanes[next]
		err = first(err, l.sendAll(x, t))
		for c := range l.out {
			if x.e.rank != root {
				l.out[c].gate = &came
			}
		}
	}
	return x.finish(ctx, err)
}

// ringReduce leaves the reduction of part r in dst of rank r. In step s rank r passes
// on part r-s-1 and adds its own elements to part r-s-2, which is part r in the last
// of the n-1 steps.
func (x *exchange) ringReduce(ctx context.Context, dst, src kernels.Tensor, bounds []int, op kernels.Op) *protocol.Failure {
	n, me := len(x.lanes), x.e.rank
	for s := range n - 1 {
		out, own := part(src, bounds, (me+2*n-s-1)%n), part(src, bounds, (me+2*n-s-2)%n)
		into := own
		if s == n-2 {
			into = dst
		}
		room, err := x.e.room(own.Len())
		if err != nil {
			return x.broken(err)
		}
		if f := x.ringStep(ctx, out, room); f != nil {
			return f
		}
		x.e.reduce(into, room, own, op)
	}
	return nil
}

// ringGather fills t, of which rank r holds part r.
func (x *exchange) ringGather(ctx context.Context, t kernels.Tensor, bounds []int) *protocol.Failure {
	n, me := len(x.lanes), x.e.rank
	for s := range n - 1 {
		if f := x.ringStep(ctx, part(t, bounds, (me+n-s)%n), part(t, bounds, (me+2*n-s-1)%n)); f != nil {
			return f
		}
	}
	return nil
}

// ringStep sends out to the next rank and at the same time fills in from the previous
// one. All meet in every step: it costs small messages, and keeps steps apart.
func (x *exchange) ringStep(ctx context.Context, out, in kernels.Tensor) *protocol.Failure {
	n := len(x.lanes)
	x.next()
	err := x.lanes[(x.e.rank+1)%n].sendAll(x, out)
	err = first(err, x.lanes[(x.e.rank+n-1)%n].takeAll(x, in))
	if f := x.finish(ctx, err); f != nil {
		return f
	}
	if err := x.e.n.be.Sync(); err != nil {
		return x.broken(err)
	}
	return nil
}

// reduce is dst = a + b, or the maximum.
func (e *end) reduce(dst, a, b kernels.Tensor, op kernels.Op) {
	if n := dst.Len(); n > 0 {
		e.n.be.Reduce([]kernels.Tensor{dst.As(1, n)}, []kernels.Tensor{a.As(1, n), b.As(1, n)}, op)
	}
}
