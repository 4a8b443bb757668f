// Package names holds the words that plans, communicators and histories share,
// and the arithmetic of ranks on axes: whoever judges a history reads these
// without linking what made it. It imports nothing of the module.
package names

// Algorithm names how float sums are ordered. Only Tree is canonical: it gives
// the bits of kernels.Reduce over ranks, whatever the transport, buckets and
// chunks. That of MPI is known to nobody: it need not be the same in two runs.
type Algorithm string

// The algorithms.
const (
	Tree Algorithm = "tree" // canonical; the default
	Ring Algorithm = "ring" // reduce-scatter and all-gather round the ring; sums start at a chunk-dependent rank
	Star Algorithm = "star" // the seeds' coordinator: rank 0 adds in rank order, then sends back
	MPI  Algorithm = "mpi"  // all-reduces are the library's; all else as in a tree. Of the transport of that name alone
)

// Names of the operations of a communicator, in errors and in histories.
const (
	OpAllReduce      = "all-reduce"
	OpReduceScatter  = "reduce-scatter"
	OpAllGather      = "all-gather"
	OpBroadcast      = "broadcast"
	OpSend           = "send"
	OpRecv           = "recv"
	OpBarrier        = "barrier"
	OpAllReduceInt   = "all-reduce-int"
	OpAllGatherBytes = "all-gather-bytes"
	OpSplit          = "split"
)

// What an operation is for, where it is no tensor, sharding unit or action of a
// schedule: labels of communicators and in histories.
const (
	Tokens       = "tokens"        // number of valid tokens of the global batch
	WholeVector  = "all"           // all elements that have an optimizer state, in one operation
	TiedGradient = "tied gradient" // of the head, last stage to first
	TiedWeight   = "tied weight"   // of the embedding, first stage to last
	Agree        = "agree"         // digests of the replicas
	Checkpoint   = "checkpoint"    // what storing and loading state exchange
)

// What becomes of a unit's weights in ZeRO stage 3.
const (
	Gather  = "gather"
	Use     = "use"
	Release = "release"
)

// What a rank's memory is for. The first three are the state that the stages of
// ZeRO shard.
const (
	MemWeights     = "weights"
	MemGrads       = "grads"
	MemMoments     = "moments"
	MemActivations = "activations"
	MemEvidence    = "evidence" // copies that only recording needs
	MemOther       = "other"    // tables, scratch, loss, buffers between ranks, and what nobody named
	MemState       = "state"    // weights, gradients and moments together
)

// Mismatch is what every rank is told whose peers called another operation: the
// text of comm.ErrMismatch, which histories keep.
const Mismatch = "ranks called operations that do not fit"

// Late is what every rank is told when one did not come in time: the text of
// comm.ErrDeadline, which histories keep.
const Late = "deadline expired"

// WireBytes is the number of bytes that each rank sends, on average over ranks,
// for one operation over count elements of 4 bytes in a group of size ranks:
// 2(n-1)/n of the buffer for an all-reduce, (n-1)/n for a reduce-scatter,
// all-gather or broadcast (nccl-tests, doc/PERFORMANCE.md). The sum over ranks
// is exact in integers: total = factor*(n-1)*count*4.
func WireBytes(op string, count int64, size int) (total int64) {
	b := 4 * count * int64(size-1)
	switch op {
	case OpAllReduce:
		return 2 * b
	case OpReduceScatter, OpAllGather, OpBroadcast:
		return b
	case OpSend:
		return 4 * count
	}
	return 0
}

// NotCounted stands for the bytes that an operation moved where nobody counted
// them, in records of communicators and in histories; 0 is a count.
const NotCounted = -1
