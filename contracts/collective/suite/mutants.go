package suite

import (
	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/drill"
	"github.com/lockstep-ml/lockstep/core/names"
)

// mutants are broken communicators.
func mutants() []suite.Mutant {
	m := fault.Mutants("C-COMM-001")
	return []suite.Mutant{
		m("contribution-lost", "1", "tree of 3 ranks", loseContribution(1),
			"the elements of one rank never enter a sum (NVIDIA/nccl#434)"),
		m("far-first-tree", "2", "tree of 8 ranks", onAllReduce(fault.FarFirst),
			"ranks are added in the order of halving from the far distance: right, but another last bit"),
		m("far-first-tree-of-5", "2", "tree of 5 ranks", onAllReduce(descending),
			"ranks are added in descending order, in a world that is no power of two"),
		m("tail-left-out", "3", "tree of 4 ranks", loseTail(),
			"the elements that the ranks do not divide evenly are not reduced"),
		m("root-of-the-world", "4", "tree of 4 ranks", rootOfWorld(),
			"sub-groups broadcast from another root than the one they are given; in the world it is right"),
		m("overwritten-in-place", "5", "tree of 4 ranks", overwriteInPlace(),
			"an output that lies within the input is cleared before the input is read"),
		m("wrong-the-second-time", "6", "tree of 4 ranks", flipAfter(0, reductions(4)+3, 4),
			"one bit is wrong in an operation that was right the first time"),
		m("one-rank-differs", "7", "tree of 4 ranks", flipAfter(2, reductions(4)-1, 30),
			"one rank receives one bit of a sum flipped (NVIDIA/nccl#2053)"),
		m("ring-contribution-lost", "1", "ring of 4 ranks", loseContribution(3),
			"the last rank's elements never enter a sum of the ring"),
		m("roots-modulo-16", "4", "tree of 17 ranks", wrapRoots(16),
			"the root of a broadcast is numbered modulo 16: the last rank's comes from the first"),
		m("owners-modulo-8", "3", "tree of 16 ranks", fault.WrapOwners(8),
			"the owners of a gather are numbered modulo 8"),
		m("one-buffer-reduced", "1", "ring of 3 ranks", firstElements(4096),
			"vectors pass through a buffer of 4096 elements, once: what is longer keeps its tail"),
		m("messages-one-way", "1", "tree of 5 ranks", loseDownward(),
			"messages from a rank to one before it are lost unless the two are neighbours"),

		m("mismatch-accepted", "7", "star of 3 ranks", asPeers(names.OpAllReduce, trimmed),
			"a rank that calls with more elements than its peers is served with a part of them (pytorch/pytorch#75902)"),
		m("reduction-not-compared", "7", "tree of 3 ranks", asPeers(names.OpReduceScatter, summed),
			"a rank that asks for the maximum gets the sum like its peers"),
		m("bounds-not-compared", "7", "ring of 4 ranks", asPeers(names.OpAllGather, byShardRule),
			"a rank whose parts are others than its peers' is served as they are, where its own is the same"),
		m("root-not-compared", "7", "tree of 8 ranks", asPeers(names.OpBroadcast, fromFirst),
			"a rank that names another root than its peers gets the elements of theirs"),
		m("peer-not-compared", "7", "tree of 4 ranks", asPeers(names.OpRecv, ofAnyone),
			"a receive takes the message of another rank than the one that it names (MPI_ANY_SOURCE)"),
		m("longer-message-cut", "7", "tree of 2 ranks", asPeers(names.OpSend, trimmed),
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

// trimToPeers reduces n elements where n+1 are given, as a transport that takes
// the smallest of the ranks' sizes does.
func trimToPeers(n int) fault.Fault {
	return onAllReduce(func(c *fault.Call) error {
		if c.X.Len() == n+1 {
			c.X = c.X.Range(0, n)
		}
		return c.Do()
	})
}
