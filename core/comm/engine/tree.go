//go:build unix

package engine

import (
	"context"

	"github.com/lockstep-ml/lockstep/core/comm/internal/protocol"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/kernels"
)

// tree is the canonical algorithm: slice r of every rank's vector goes straight to rank
// r, which reduces it by kernels.Reduce in rank order, and back to all.
type tree struct{}

// Phases of a tree's pieces.
const (
	toOwner uint16 = 1 + iota
	fromOwner
)

// allReduce sends 2(n-1)/n of the vector, in two hops. Two ranks exchange the whole
// vector in one, and more have a short one reduced by rank 0: that is as many bytes of
// all ranks together.
func (tree) allReduce(ctx context.Context, x *exchange, t kernels.Tensor, op kernels.Op) *protocol.Failure {
	switch n := t.Len(); {
	case len(x.e.ranks) == 2:
		return x.exchangeWhole(ctx, t, op)
	case len(x.e.ranks) > 2 && n > 0 && n <= short:
		return x.throughOne(ctx, t, op)
	}
	bounds := shard.Bounds(t.Len(), len(x.e.ranks))
	mine := part(t, bounds, x.e.rank)
	f, err := x.newFold(mine, mine, op)
	if err != nil {
		return x.broken(err)
	}
	for i, l := range x.peers() {
		theirs := part(t, bounds, i)
		out, in := x.e.chunks(theirs.Len()), len(f.ready)
		for c := range max(out, in) + 1 { // chunk c to its owner, then the one before it back
			if c < out {
				err = first(err, l.send(x, theirs, c, toOwner, nil))
			}
			if c < in {
				err = first(err, l.fold(f, i, c))
			}
			if c > 0 && c <= in {
				err = first(err, l.send(x, mine, c-1, fromOwner, &f.over))
			}
			if c > 0 && c <= out {
				err = first(err, l.take(x, theirs, c-1, fromOwner))
			}
		}
	}
	return x.finish(ctx, err)
}

// exchangeWhole is the all-reduce of two ranks.
func (x *exchange) exchangeWhole(ctx context.Context, t kernels.Tensor, op kernels.Op) *protocol.Failure {
	f, err := x.newFold(t, t, op)
	if err != nil {
		return x.broken(err)
	}
	f.wants = 2 // it has come, and what it overwrites is sent
	l, peer := &x.lanes[1-x.e.rank], 1-x.e.rank
	for c := range f.ready {
		err = first(err, l.send(x, t, c, toOwner, nil))
		if err == nil {
			last := &l.out[len(l.out)-1]
			last.stays, last.done = false, func() { f.step(c) }
		}
		err = first(err, l.fold(f, peer, c))
	}
	return x.finish(ctx, err)
}

// throughOne is the all-reduce of a vector of one chunk: its n-1 ranks send it to rank 0
// and get the sums, in 2(n-1) messages instead of 2n(n-1). Nobody hears of ranks other
// than rank 0, which hears of all.
func (x *exchange) throughOne(ctx context.Context, t kernels.Tensor, op kernels.Op) *protocol.Failure {
	if x.e.rank != 0 {
		l := &x.lanes[0]
		if err := first(l.send(x, t, 0, toOwner, nil), l.take(x, t, 0, fromOwner)); err != nil {
			return x.broken(err)
		}
		return x.run(ctx)
	}
	f, err := x.newFold(t, t, op)
	if err != nil {
		return x.broken(err)
	}
	for i, l := range x.peers() {
		err = first(err, first(l.fold(f, i, 0), l.send(x, t, 0, fromOwner, &f.over)))
	}
	return x.finish(ctx, err)
}

func (tree) reduceScatter(ctx context.Context, x *exchange, dst, src kernels.Tensor, op kernels.Op) *protocol.Failure {
	f, err := x.newFold(dst, part(src, x.call.Bounds, x.e.rank), op)
	if err != nil {
		return x.broken(err)
	}
	for i, l := range x.peers() {
		theirs := part(src, x.call.Bounds, i)
		for c := range x.e.chunks(theirs.Len()) {
			err = first(err, l.send(x, theirs, c, toOwner, nil))
		}
		for c := range f.ready {
			err = first(err, l.fold(f, i, c))
		}
	}
	return x.finish(ctx, err)
}

func (tree) allGather(ctx context.Context, x *exchange, t kernels.Tensor) *protocol.Failure {
	mine := part(t, x.call.Bounds, x.e.rank)
	var err error
	for i, l := range x.peers() {
		err = first(err, l.sendAll(x, mine))
		err = first(err, l.takeAll(x, part(t, x.call.Bounds, i)))
	}
	return x.finish(ctx, err)
}

func (tree) broadcast(ctx context.Context, x *exchange, t kernels.Tensor, root int) *protocol.Failure {
	var err error
	for i, l := range x.peers() {
		switch {
		case x.e.rank == root:
			err = first(err, l.sendAll(x, t))
		case i == root:
			err = first(err, l.takeAll(x, t))
		}
	}
	return x.finish(ctx, err)
}

// part is rank r's part of a vector.
func part(t kernels.Tensor, bounds []int, r int) kernels.Tensor {
	return t.Range(bounds[r], bounds[r+1])
}

// first keeps the first error.
func first(err, next error) error {
	if err != nil {
		return err
	}
	return next
}

// send queues chunk c of a tensor; it may go once gate is over c.
func (l *lane) send(x *exchange, t kernels.Tensor, c int, phase uint16, gate *int) error {
	body, err := x.e.bytes(x.e.chunkOf(t, c))
	l.out = append(l.out, sending{kind: piece, phase: phase, index: uint32(c), payload: body, gate: gate, need: c, stays: true})
	if phase == fromOwner {
		x.e.moved += int64(len(body)) // written to a peer
	}
	return err
}

// take expects chunk c of a tensor in its place.
func (l *lane) take(x *exchange, t kernels.Tensor, c int, phase uint16) error {
	body, err := x.e.bytes(x.e.chunkOf(t, c))
	l.in = append(l.in, expecting{kind: piece, phase: phase, index: uint32(c), payload: body})
	return err
}

// fold expects chunk c of a peer's elements for a reduction.
func (l *lane) fold(f *fold, peer, c int) error {
	w, err := f.expect(peer, c, toOwner)
	l.in = append(l.in, w)
	return err
}

// sendAll queues a tensor.
func (l *lane) sendAll(x *exchange, t kernels.Tensor) (err error) {
	for c := range x.e.chunks(t.Len()) {
		err = first(err, l.send(x, t, c, toOwner, nil))
	}
	return err
}

// takeAll expects a tensor in its place, and counts what is read of the peer.
func (l *lane) takeAll(x *exchange, t kernels.Tensor) (err error) {
	for c := range x.e.chunks(t.Len()) {
		err = first(err, l.take(x, t, c, toOwner))
	}
	x.e.moved += 4 * int64(t.Len())
	return err
}
