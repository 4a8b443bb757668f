package comm

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Mover is a Communicator that counts the bytes of peers that it touches, where
// it touches them.
type Mover interface {
	// Moved is Record.Moved of the operation that returned last. It is called by
	// the goroutine that ran the operation.
	Moved() int64
}

// Recorded is c with a record of every operation, whoever carries it: observe is
// called by the rank's goroutine at the end of each, also of one that failed or
// panicked (its Err is then ErrPanicked). Groups that c splits into are recorded
// too. Ranks that share observe call it at once, and so do the groups of one rank.
//
// The number of an operation is counted here, per group and, for messages, per
// sender and receiver. What c is asked for is recorded: decorators that change
// operations belong outside.
func Recorded(c Communicator, observe func(Record)) Communicator {
	r := &recorded{Communicator: c, observe: observe, ranks: c.Ranks(), part: shard.Part{Index: c.Rank(), Size: c.Size()}}
	r.mover, _ = c.(Mover)
	r.sent, r.received = make([]atomic.Uint64, r.part.Size), make([]atomic.Uint64, r.part.Size)
	return r
}

// recorded counts atomically: a rank that calls two operations at once makes a
// mistake, which c reports.
type recorded struct {
	Communicator
	observe func(Record)
	mover   Mover // nil where c does not count
	ranks   []int
	part    shard.Part

	collectives    atomic.Uint64   // that ended well
	sent, received []atomic.Uint64 // messages that ended well, by the other rank
}

// run runs an operation and records it. count is its number unless it fails.
func (r *recorded) run(ctx context.Context, rec Record, count *atomic.Uint64, f func() error) (err error) {
	err = ErrPanicked // unless something else is known
	defer func() { r.record(ctx, rec, count, err) }()
	return f()
}

// record completes the record of an operation that has ended.
func (r *recorded) record(ctx context.Context, rec Record, count *atomic.Uint64, err error) {
	rec.Rank, rec.Group, rec.Label, rec.Err = r.ranks[r.part.Index], r.ranks, LabelOf(ctx), err
	rec.Bytes, rec.Moved = ShareBytes(rec.Op, rec.Count, r.part), names.NotCounted
	if r.mover != nil {
		rec.Moved = r.mover.Moved()
	}
	rec.Seq = count.Load()
	if err == nil {
		count.Add(1)
	} else if failed := (*Error)(nil); errors.As(err, &failed) {
		rec.Seq = failed.Seq
	}
	r.observe(rec)
}

// collective runs an operation of all ranks that has no peer.
func (r *recorded) collective(ctx context.Context, op string, count int, reduction kernels.Op, f func() error) error {
	return r.run(ctx, Record{Op: op, Count: int64(count), Reduction: reduction, Peer: -1}, &r.collectives, f)
}

// message runs one side of a message.
func (r *recorded) message(ctx context.Context, op string, x kernels.Tensor, peer int, counts []atomic.Uint64, f func() error) error {
	var nobody atomic.Uint64
	count := &nobody
	if peer >= 0 && peer < len(counts) {
		count = &counts[peer]
	}
	return r.run(ctx, Record{Op: op, Count: int64(x.Len()), Peer: r.world(peer)}, count, f)
}

// world is a rank of the group in the world, -1 where there is none.
func (r *recorded) world(rank int) int {
	if rank < 0 || rank >= len(r.ranks) {
		return -1
	}
	return r.ranks[rank]
}

// AllReduce implements Communicator.
func (r *recorded) AllReduce(ctx context.Context, x kernels.Tensor, op kernels.Op) error {
	return r.collective(ctx, names.OpAllReduce, x.Len(), op, func() error { return r.Communicator.AllReduce(ctx, x, op) })
}

// ReduceScatter implements Communicator.
func (r *recorded) ReduceScatter(ctx context.Context, dst, src kernels.Tensor, bounds []int, op kernels.Op) error {
	return r.collective(ctx, names.OpReduceScatter, src.Len(), op, func() error {
		return r.Communicator.ReduceScatter(ctx, dst, src, bounds, op)
	})
}

// AllGather implements Communicator.
func (r *recorded) AllGather(ctx context.Context, dst, src kernels.Tensor, bounds []int) error {
	return r.collective(ctx, names.OpAllGather, dst.Len(), kernels.Sum, func() error {
		return r.Communicator.AllGather(ctx, dst, src, bounds)
	})
}

// Broadcast implements Communicator.
func (r *recorded) Broadcast(ctx context.Context, x kernels.Tensor, root int) error {
	rec := Record{Op: names.OpBroadcast, Count: int64(x.Len()), Peer: r.world(root)}
	return r.run(ctx, rec, &r.collectives, func() error { return r.Communicator.Broadcast(ctx, x, root) })
}

// Send implements Communicator.
func (r *recorded) Send(ctx context.Context, x kernels.Tensor, to int) error {
	return r.message(ctx, names.OpSend, x, to, r.sent, func() error { return r.Communicator.Send(ctx, x, to) })
}

// Recv implements Communicator.
func (r *recorded) Recv(ctx context.Context, x kernels.Tensor, from int) error {
	return r.message(ctx, names.OpRecv, x, from, r.received, func() error { return r.Communicator.Recv(ctx, x, from) })
}

// Barrier implements Communicator.
func (r *recorded) Barrier(ctx context.Context) error {
	return r.collective(ctx, names.OpBarrier, 0, kernels.Sum, func() error { return r.Communicator.Barrier(ctx) })
}

// AllReduceInt implements Communicator.
func (r *recorded) AllReduceInt(ctx context.Context, x []uint64, op kernels.Op) error {
	return r.collective(ctx, names.OpAllReduceInt, len(x), op, func() error { return r.Communicator.AllReduceInt(ctx, x, op) })
}

// AllGatherBytes implements Communicator.
func (r *recorded) AllGatherBytes(ctx context.Context, b []byte) (all [][]byte, err error) {
	err = r.collective(ctx, names.OpAllGatherBytes, len(b), kernels.Sum, func() (err error) {
		all, err = r.Communicator.AllGatherBytes(ctx, b)
		return err
	})
	return all, err
}

// Split implements Communicator.
func (r *recorded) Split(ctx context.Context, color, key int) (sub Communicator, err error) {
	err = r.collective(ctx, names.OpSplit, 0, kernels.Sum, func() (err error) {
		sub, err = r.Communicator.Split(ctx, color, key)
		return err
	})
	if err != nil || sub == nil {
		return nil, err
	}
	return Recorded(sub, r.observe), nil
}
