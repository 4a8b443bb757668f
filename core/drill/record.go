package drill

import (
	"encoding/binary"

	"github.com/lockstep-ml/lockstep/kernels"
)

// Record is one operation on one rank: what was done, and the digest of what
// came out. The digest covers the result and the guards round it.
type Record struct {
	Op    string `json:"op"`
	Rank  int    `json:"rank"`  // in the world
	Group []int  `json:"group"` // world ranks, by rank in the group; of a split, the new group
	// Peer is the root of a broadcast, the receiver of a send or the sender of a
	// receive, in the world; -1 for other operations.
	Peer      int    `json:"peer"`
	Reduction string `json:"reduction"`        // "sum" or "max"
	Count     int    `json:"count"`            // elements of the whole vector
	Bounds    []int  `json:"bounds,omitempty"` // nil is the shard rule
	InPlace   bool   `json:"inPlace,omitempty"`
	Input     Input  `json:"input"`
	Seed      uint64 `json:"seed"` // of the inputs
	Iteration int    `json:"iteration"`

	Digest kernels.Digest `json:"digest"`
	Err    string         `json:"err,omitempty"` // why the operation failed
}

// Operation is the reduction.
func (r Record) Operation() kernels.Op {
	if r.Reduction == kernels.Max.String() {
		return kernels.Max
	}
	return kernels.Sum
}

// source gives the record's inputs.
func (r Record) source() source { return source{kind: r.Input, op: r.Operation(), base: hash(r.Seed)} }

// bytes is a rank's input to AllGatherBytes: lengths differ, some are 0.
func (r Record) bytesOf(rank int) []byte {
	n := (r.Count + rank) % (r.Count + 2)
	var b []byte
	for i := 0; len(b) < n; i++ {
		b = binary.LittleEndian.AppendUint64(b, r.source().word(rank, i))
	}
	return b[:n]
}
