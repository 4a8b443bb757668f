package comm

import (
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Record describes one operation that has ended on one rank.
type Record struct {
	Op   string // one of the Op constants
	Rank int    // this rank, in the world
	// Group holds the world ranks of the group; it is shared, do not modify it.
	Group []int
	// Seq counts the collectives of the group, or for Send and Recv the messages
	// from the sender to the receiver, from 0. A failed operation has the number
	// that its *Error says.
	Seq uint64
	// Count is the number of elements: the whole vector's for AllReduce,
	// ReduceScatter (src) and AllGather (dst), own bytes for AllGatherBytes.
	Count int64
	// Bytes is this rank's share of the bytes on the wire (see ShareBytes).
	Bytes int64
	// Moved is the number of bytes in peers' tensors that this rank read or wrote,
	// counted where they are moved. Over the ranks of a group it adds up to what
	// Bytes does where the algorithm moves what names.WireBytes says: the star's
	// reduce-scatter moves more. names.NotCounted where the communicator is no Mover.
	Moved int64
	// Peer is the other rank of Send and Recv, or the root of Broadcast, in the
	// world; -1 for other operations.
	Peer      int
	Reduction kernels.Op
	Label     Label
	Err       error // nil, or what the operation returned
}

// ShareBytes is the share of the group's i-th rank in WireBytes: the total is
// spread evenly, the first ranks take the remainder, so shares add up exactly.
// A message counts on its sender alone. part must be valid.
func ShareBytes(op string, count int64, part shard.Part) int64 {
	total := names.WireBytes(op, count, part.Size)
	if op == names.OpSend {
		return total
	}
	size := int64(part.Size)
	share := total / size
	if int64(part.Index) < total%size {
		share++
	}
	return share
}
