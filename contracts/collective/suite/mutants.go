package suite

import (
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/drill"
	"github.com/lockstep-ml/lockstep/core/names"
)

// mutants are broken communicators.
func mutants() []suite.Mutant {
	const some = suite.Any
	at := suite.At
	m := func(id, clause, on string, where suite.Place, f fault.Fault, says string, rows ...string) suite.Mutant {
		return suite.Mutant{At: where, Rows: rows, ID: id, Clause: "C-COMM-001." + clause, On: on, Break: fault.Into(contract.Test, f), Says: says}
	}
	return []suite.Mutant{
		m("contribution-lost", "1", "tree of 3 ranks", at(some, 0, "sum of integer"), loseContribution(1),
			"the elements of one rank never enter a sum (NVIDIA/nccl#434)", "B150"),
		m("far-first-tree", "2", "tree of 8 ranks", at(some, 0, "sum of order"), onAllReduce(fault.FarFirst),
			"ranks are added in the order of halving from the far distance: right, but another last bit"),
		m("far-first-tree-of-5", "2", "tree of 5 ranks", at(some, 0, "sum of order"), onAllReduce(descending),
			"ranks are added in descending order, in a world that is no power of two"),
		m("tail-left-out", "3", "tree of 4 ranks", at(some, 0, "all-reduce of 1 elements"), loseTail(),
			"the elements that the ranks do not divide evenly are not reduced"),
		m("root-of-the-world", "4", "tree of 4 ranks", at(some, 0, "broadcast"), rootOfWorld(),
			"sub-groups broadcast from another root than the one they are given; in the world it is right", "B046"),
		m("overwritten-in-place", "5", "tree of 4 ranks", at(some, 0, "in place"), overwriteInPlace(),
			"an output that lies within the input is cleared before the input is read"),
		m("wrong-the-second-time", "6", "tree of 4 ranks", at(0, 1, "all-reduce"), flipAfter(0, reductions(4)+3, 4),
			"one bit is wrong in an operation that was right the first time"),
		m("one-rank-differs", "7", "tree of 4 ranks", at(2, 0, "all-reduce"), flipAfter(2, reductions(4)-1, 30),
			"one rank receives one bit of a sum flipped (NVIDIA/nccl#2053)", "B149"),
		m("ring-contribution-lost", "1", "ring of 4 ranks", at(some, 0, "sum of integer"), loseContribution(3),
			"the last rank's elements never enter a sum of the ring"),
		m("mismatch-accepted", "7", "star of 3 ranks", at(some, 0, "length of all-reduce: longer"), asPeers(names.OpAllReduce, trimmed),
			"a rank that calls with more elements than its peers is served with a part of them (pytorch/pytorch#75902)", "B007"),
		m("roots-modulo-16", "4", "tree of 17 ranks", at(some, 0, "root 16"), wrapRoots(16),
			"the root of a broadcast is numbered modulo 16: the last rank's comes from the first"),
		m("owners-modulo-8", "3", "tree of 16 ranks", at(some, 0, "all-gather of 15 elements"), fault.WrapOwners(8),
			"the owners of a gather are numbered modulo 8"),
		m("one-buffer-reduced", "1", "ring of 4 ranks", at(some, 0, "all-reduce of 4097 elements"), firstElements(4096),
			"vectors pass through a buffer of 4096 elements, once: what is longer keeps its tail"),
		m("second-chunk-lost", "1", "star of 3 ranks", at(some, 0, "reduce-scatter of 16411 elements"), pastChunk(8192),
			"vectors pass through the first rank in chunks of 8192 elements: what comes after the first is left as it was"),
		m("descending-beyond-17", "2", "tree of 33 ranks", at(some, 0, "all-reduce of 34 elements"), onAllReduce(beyond(17, descending)),
			"more than 17 ranks are added in descending order: no fewer"),
		m("messages-one-way", "1", "tree of 5 ranks", at(0, 0, ", from 2"), loseDownward(),
			"messages from a rank to one before it are lost unless the two are neighbours"),
		m("reduction-not-compared", "7", "tree of 3 ranks", at(some, 0, "reduction of reduce-scatter"), asPeers(names.OpReduceScatter, summed),
			"a rank that asks for the maximum gets the sum like its peers"),
		m("bounds-not-compared", "7", "ring of 4 ranks", at(some, 0, "bounds of all-gather between others"), asPeers(names.OpAllGather, byShardRule),
			"a rank whose parts are others than its peers' is served as they are, where its own is the same"),
		m("root-not-compared", "7", "tree of 8 ranks", at(some, 0, "root of broadcast"), asPeers(names.OpBroadcast, fromFirst),
			"a rank that names another root than its peers gets the elements of theirs"),
		m("peer-not-compared", "7", "tree of 4 ranks", at(some, 0, "peer of a receive"), asPeers(names.OpRecv, ofAnyone),
			"a receive takes the message of another rank than the one that it names (MPI_ANY_SOURCE)"),
		m("longer-message-cut", "7", "tree of 2 ranks", at(some, 0, "length of a message: longer"), asPeers(names.OpSend, trimmed),
			"a receive of fewer elements than were sent takes the first of them"),
	}
}

// reductions is the number of non-empty all-reduces on the world in one drill of
// the lowest level.
func reductions(world int) int {
	n := 0
	for _, r := range drill.Plan(world, 0, 1, 0) {
		if r.Op == names.OpAllReduce && len(r.Group) == world && r.Count > 0 {
			n++
		}
	}
	return n
}
