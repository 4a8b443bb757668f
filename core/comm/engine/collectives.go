//go:build unix

package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"slices"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/comm/internal/protocol"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
)

// AllReduce implements comm.Communicator.
func (e *end) AllReduce(ctx context.Context, x kernels.Tensor, op kernels.Op) error {
	return e.operation(ctx, e.place().AllReduce(x, op), func(w *exchange) *protocol.Failure {
		return e.algorithm().allReduce(ctx, w, x, op)
	})
}

// ReduceScatter implements comm.Communicator.
func (e *end) ReduceScatter(ctx context.Context, dst, src kernels.Tensor, bounds []int, op kernels.Op) error {
	return e.operation(ctx, e.place().ReduceScatter(dst, src, bounds, op), func(w *exchange) *protocol.Failure {
		return e.algorithm().reduceScatter(ctx, w, dst, src, op)
	})
}

// AllGather implements comm.Communicator.
func (e *end) AllGather(ctx context.Context, dst, src kernels.Tensor, bounds []int) error {
	return e.operation(ctx, e.place().AllGather(dst, src, bounds), func(w *exchange) *protocol.Failure {
		e.copy(dst.Range(w.call.Bounds[e.rank], w.call.Bounds[e.rank+1]), src)
		if err := e.n.be.Sync(); err != nil {
			return w.broken(err)
		}
		return e.algorithm().allGather(ctx, w, dst)
	})
}

// Broadcast implements comm.Communicator.
func (e *end) Broadcast(ctx context.Context, x kernels.Tensor, root int) error {
	return e.operation(ctx, e.place().Broadcast(x, root), func(w *exchange) *protocol.Failure {
		return e.algorithm().broadcast(ctx, w, x, root)
	})
}

// Send implements comm.Communicator. It returns when the receiver has said that it has
// x.
func (e *end) Send(ctx context.Context, x kernels.Tensor, to int) error {
	return e.operation(ctx, e.place().Message(names.OpSend, x, to), func(w *exchange) *protocol.Failure {
		body, err := e.bytes(x)
		if err != nil {
			return w.broken(err)
		}
		l := &w.lanes[to]
		l.out = append(l.out, sending{kind: message, payload: body, stays: true})
		l.in = append(l.in, expecting{kind: receipt})
		return w.run(ctx)
	})
}

// Recv implements comm.Communicator.
func (e *end) Recv(ctx context.Context, x kernels.Tensor, from int) error {
	return e.operation(ctx, e.place().Message(names.OpRecv, x, from), func(w *exchange) *protocol.Failure {
		body, err := e.bytes(x)
		if err != nil {
			return w.broken(err)
		}
		l, came := &w.lanes[from], 0
		l.in = append(l.in, expecting{kind: message, payload: body, done: func([]byte) { came++; e.moved += int64(len(body)) }})
		l.out = append(l.out, sending{kind: receipt, gate: &came})
		return w.run(ctx)
	})
}

// Barrier implements comm.Communicator.
func (e *end) Barrier(ctx context.Context) error {
	return e.operation(ctx, e.place().Barrier(), func(w *exchange) *protocol.Failure { return w.meet(ctx) })
}

// AllReduceInt implements comm.Communicator.
func (e *end) AllReduceInt(ctx context.Context, x []uint64, op kernels.Op) error {
	return e.operation(ctx, e.place().AllReduceInt(x, op), func(w *exchange) *protocol.Failure {
		own := make([]byte, 0, 8*len(x))
		for _, v := range x {
			own = binary.LittleEndian.AppendUint64(own, v)
		}
		all, f := w.gather(ctx, own, func(int) int { return len(own) })
		if f != nil {
			return f
		}
		for i := range x {
			v := uint64(0)
			for _, b := range all {
				if y := binary.LittleEndian.Uint64(b[8*i:]); op == kernels.Max {
					v = max(v, y)
				} else {
					v += y
				}
			}
			x[i] = v
		}
		return nil
	})
}

// maxBytes bounds what one rank gives to AllGatherBytes.
const maxBytes = 1 << 30

// AllGatherBytes implements comm.Communicator.
func (e *end) AllGatherBytes(ctx context.Context, b []byte) (all [][]byte, err error) {
	err = e.operation(ctx, e.place().AllGatherBytes(b), func(w *exchange) (f *protocol.Failure) {
		all, f = w.gather(ctx, bytes.Clone(b), nil)
		return f
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// Split implements comm.Communicator.
func (e *end) Split(ctx context.Context, color, key int) (comm.Communicator, error) {
	var child *end
	err := e.operation(ctx, e.place().Split(color, key), func(w *exchange) *protocol.Failure {
		own := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(color)), uint64(key))
		all, f := w.gather(ctx, own, func(int) int { return len(own) })
		if f != nil {
			return f
		}
		called := make(protocol.Roll, len(all))
		for r, b := range all {
			called[r] = &protocol.Call{Color: int(binary.LittleEndian.Uint64(b)), Key: int(binary.LittleEndian.Uint64(b[8:]))}
		}
		if child = e.split(called, w.call.Seq); child == nil {
			return nil
		}
		links := make([]*link, len(child.ranks))
		for i, r := range child.ranks {
			links[i] = e.links[slices.Index(e.ranks, r)]
		}
		w.next()
		return w.reducer(ctx, child, links)
	})
	if err != nil || child == nil {
		return nil, err
	}
	return child, nil
}

// split opens this rank's group of a split, nil where it joins none.
func (e *end) split(called protocol.Roll, seq uint64) *end {
	for _, members := range called.Split() {
		rank := slices.Index(members, e.rank)
		if rank < 0 {
			continue
		}
		ranks := make([]int, len(members))
		for i, r := range members {
			ranks[i] = e.ranks[r]
		}
		child := newEnd(e.n, childID(e.id, seq, called[e.rank].Color), ranks, rank)
		e.children = append(e.children, child)
		return child
	}
	return nil
}

// meet exchanges nothing with every peer for which there is nothing else: so that
// nobody returns before all have called, and everybody knows what they called.
func (x *exchange) meet(ctx context.Context) *protocol.Failure {
	for _, l := range x.peers() {
		if len(l.out) == 0 {
			l.out = append(l.out, sending{kind: piece})
		}
		if len(l.in) == 0 {
			l.in = append(l.in, expecting{kind: piece})
		}
	}
	return x.run(ctx)
}

// finish meets, unless this rank could not prepare its part.
func (x *exchange) finish(ctx context.Context, err error) *protocol.Failure {
	if err != nil {
		return x.broken(err)
	}
	return x.meet(ctx)
}

// gather exchanges bytes: length gives that of each rank's, nil is any.
func (x *exchange) gather(ctx context.Context, own []byte, length func(rank int) int) ([][]byte, *protocol.Failure) {
	all := make([][]byte, len(x.lanes))
	all[x.e.rank] = own
	for i, l := range x.peers() {
		w := expecting{kind: piece, limit: maxBytes, done: func(b []byte) { all[i] = b }}
		if length != nil {
			w.payload, w.limit = make([]byte, length(i)), 0
		}
		l.out, l.in = append(l.out, sending{kind: piece, payload: own}), append(l.in, w)
	}
	return all, x.meet(ctx)
}

// next prepares the lanes for another exchange of the same operation.
func (x *exchange) next() {
	for i := range x.lanes {
		l := &x.lanes[i]
		*l = lane{link: l.link, seq: l.seq, out: l.out[:0], in: l.in[:0]}
	}
}

// broken is the failure of this rank's part of an operation.
func (x *exchange) broken(err error) *protocol.Failure {
	return x.e.n.fail(protocol.Broken(x.e.ranks, x.e.rank, x.call, err))
}

// copy copies src to dst unless they are empty or the same memory.
func (e *end) copy(dst, src kernels.Tensor) {
	n := dst.Len()
	if n == 0 || e.n.be.Span(dst) == e.n.be.Span(src) {
		return
	}
	e.n.be.Copy(dst.As(1, n), src.As(1, n))
}
