// Package comm holds the collectives: the Communicator interface, and its
// in-process implementation, whose ranks are goroutines that own their buffers
// and read each other's in place.
package comm

import (
	"context"
	"fmt"

	"github.com/lockstep-ml/lockstep/kernels"
)

// Communicator is one rank's end of a group of ranks. All ranks of the group
// call the same operations in the same order with the same sizes; an operation
// returns when this rank's buffers may be used again. Tensors are contiguous.
//
// Every error is an *Error. Once an operation has failed on one rank (its
// context ended, it closed, it called another operation than its peers) it
// fails on all ranks, and so do all later ones: a failed group stays failed.
// One rank calls one operation at a time; Split a communicator to overlap.
type Communicator interface {
	// Rank is this rank's index in the group, Size the number of ranks.
	Rank() int
	Size() int
	// Ranks holds the ids, in the world, of the group's ranks.
	Ranks() []int

	// AllReduce replaces x on every rank by the reduction over ranks.
	AllReduce(ctx context.Context, x kernels.Tensor, op kernels.Op) error
	// ReduceScatter gives rank r the reduction of elements
	// [bounds[r], bounds[r+1]) of src in dst, which has that length and may be
	// that part of src. Nil bounds are the shard rule over src.Len. What src
	// holds elsewhere afterwards is unspecified only inside other ranks' dst.
	ReduceScatter(ctx context.Context, dst, src kernels.Tensor, bounds []int, op kernels.Op) error
	// AllGather gives every rank, in dst, the ranks' src one after another:
	// rank r's is elements [bounds[r], bounds[r+1]). Nil bounds are the shard
	// rule over dst.Len. src may be this rank's part of dst.
	AllGather(ctx context.Context, dst, src kernels.Tensor, bounds []int) error
	// Broadcast copies root's x to every rank.
	Broadcast(ctx context.Context, x kernels.Tensor, root int) error
	// Send gives x to rank to, which calls Recv with an equal length; messages
	// between two ranks arrive in order. Send may return before Recv is called
	// only if it copied x.
	Send(ctx context.Context, x kernels.Tensor, to int) error
	// Recv fills x with what rank from sent.
	Recv(ctx context.Context, x kernels.Tensor, from int) error
	// Barrier returns after all ranks have called it.
	Barrier(ctx context.Context) error

	// AllReduceInt replaces x by the sum modulo 2^64, or the unsigned maximum,
	// over ranks.
	AllReduceInt(ctx context.Context, x []uint64, op kernels.Op) error
	// AllGatherBytes returns every rank's b, by rank; lengths may differ.
	AllGatherBytes(ctx context.Context, b []byte) ([][]byte, error)

	// Split makes new groups of the ranks that give the same color, ordered by
	// (key, rank). All ranks of this group call it; a negative color joins none
	// and returns nil.
	Split(ctx context.Context, color, key int) (Communicator, error)
	// Close leaves the group: peers that still wait for this rank fail with an
	// error that says so. Closing a group that is at rest is silent.
	Close() error
}

// Error is a failed operation of a communicator.
type Error struct {
	Op   string // the operation this rank was in
	Rank int    // this rank, in the world
	Peer int    // the rank that caused it, in the world; -1 where unknown
	Seq  uint64 // which operation of this group, or message of sender and receiver, from 0
	Err  error
}

// Error names operation, rank, sequence number and the cause.
func (e *Error) Error() string {
	s := fmt.Sprintf("%s (operation %d of its group) on rank %d", e.Op, e.Seq, e.Rank)
	if e.Peer >= 0 {
		s += fmt.Sprintf(", because of rank %d", e.Peer)
	}
	return s + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
