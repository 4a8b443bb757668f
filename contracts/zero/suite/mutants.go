package suite

import (
	"context"
	"math"
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/parallel"
	"github.com/lockstep-ml/lockstep/kernels"
)

// mutants are broken runs, at least one per clause.
func mutants() []suite.Mutant {
	m := fault.Mutants("C-ZERO-001")
	b := model.BlockUnit
	const first = 1 // unit of block 0 where the embedding is unit 0
	return []suite.Mutant{
		m("remainder-to-last", "1", "odd dp=4,zero=2", remainderLast(),
			"the last rank takes what does not divide: shards cover everything and the result is right, the sizes are not"),
		m("remainder-to-last-in-stage-3", "1", "odd dp=3,zero=3", remainderLast(),
			"the same with weights sharded too"),

		m("scatter-in-another-order", "2", "odd dp=4,zero=2", farScatter(),
			"reduce-scatter adds the ranks in the order of halving from the far distance: another last bit"),
		m("owner-does-not-update", "2", "odd dp=4,zero=3", skipUpdate(3),
			"the last rank's slices never move; all ranks agree on them (pytorch/pytorch#176076)"),
		m("clipped-by-local-norm", "2", "odd dp=4,zero=3", fault.LocalNorm(),
			"every rank clips by the norm of its own shard (pytorch/torchtitan#766, sgl-project/SpecForge#663)"),
		m("moments-swapped", "2", "nano dp=4,zero=1", swapMoments(2),
			"one rank takes the first moments of its shard for the second ones"),
		m("idle-rank-does-not-count", "2", "nano dp=8,zero=1,shard=round-robin", fault.IdleCounter(4, 5, 6, 7),
			"the step counter stands still on ranks that own nothing"),
		m("reduced-gradient-reduced-again", "2", "nano dp=4,zero=2", fault.ReduceAgain(),
			"what a rank holds reduced enters the next reduction (hpcaitech/ColossalAI#247)"),

		m("stale-slice", "3", "odd dp=4,zero=1", fault.StaleSlice(2, 3, names.WholeVector),
			"a gather gives one rank a peer's slice of an earlier step"),
		m("stale-slice-in-stage-3", "3", "odd dp=4,zero=3", fault.StaleSlice(1, 0, b(2)),
			"a gather before use gives one rank a peer's slice of an earlier step"),
		m("broadcast-from-other-rank", "3", "odd dp=4,zero=1,shard=balanced", otherRoot(),
			"updated weights are broadcast by another rank than their owner (hpcaitech/ColossalAI#2391)"),

		m("unit-not-released", "4", "nano dp=4,zero=3", announceTwice(-1, first, model.Forward),
			"one block stays gathered and is read again in the next step (deepspeedai/DeepSpeed#3025, NVIDIA/Megatron-LM#950)"),
		m("released-during-use", "4", "nano dp=4,zero=3", releaseEarly(2, 9),
			"a block's buffer is given up, and poisoned, before its forward pass is through"),
		m("all-slices-stale", "4", "odd dp=3,zero=3", fault.All(fault.StaleSlice(0, 1, b(1)), fault.StaleSlice(1, 1, b(1)), fault.StaleSlice(2, 1, b(1))),
			"every rank's pass finds one slice of the step before: they agree with each other"),

		m("gradient-not-freed", "5", "nano dp=4,zero=2", announceTwice(0, first, model.Backward),
			"a block's full gradient is allocated again before it was freed: one buffer leaks per micro-batch"),
		m("unit-held", "5", "odd dp=2,tp=2,zero=3", announceTwice(-1, first, model.Forward),
			"all ranks keep a block gathered (pytorch/pytorch#149029)"),

		m("gathered-twice", "6", "nano dp=4,zero=3", fault.OnCalls(fault.Calls(names.OpAllGather, b(3)), fault.Twice),
			"one block is gathered twice for each use: nothing but traffic shows it (NVIDIA/Megatron-LM#6492)"),
		m("all-reduced-instead-of-scattered", "6", "nano dp=4,zero=2", farScatter(),
			"gradients are all-reduced and then cut: twice the traffic"),

		m("two-owners", "7", "nano dp=4,zero=1,shard=contiguous", secondOwner(b(1), 3, 1),
			"two ranks hold and update the state of one block"),
		m("all-on-rank-0", "7", "nano dp=2,zero=1,shard=balanced", allOnFirst(),
			"a balanced map gives everything to rank 0: the result is right, no memory is saved"),
		m("block-without-owner", "7", "odd dp=4,zero=1,shard=balanced", noOwner(b(2)),
			"no rank holds the state of one block: it never moves"),
	}
}

// farScatter adds the ranks' gradients in reduce-scatters in another order, by
// an all-reduce of which every rank takes its part.
func farScatter() fault.Fault {
	scatters := func(c *fault.Call) bool { return c.OfReplicas() && c.Op == names.OpReduceScatter }
	return fault.OnCalls(scatters, func(c *fault.Call) error {
		whole, r := *c, c.Comm.Rank()
		whole.Op, whole.X = names.OpAllReduce, c.From
		if err := fault.FarFirst(&whole); err != nil {
			return err
		}
		c.Backend.Copy(c.X, c.From.Range(c.Bounds[r], c.Bounds[r+1]))
		return nil
	})
}

// otherRoot broadcasts everything, after the initial weights, from the rank
// after its owner.
func otherRoot() fault.Fault {
	return fault.OnCalls(updated, func(c *fault.Call) error {
		c.Peer = (c.Peer + 1) % c.Comm.Size()
		return c.Do()
	})
}

// updated selects the broadcasts of weights that a step has updated.
func updated(c *fault.Call) bool {
	return c.OfReplicas() && c.Op == names.OpBroadcast && c.Label.Step >= 0
}

// skipUpdate makes one rank skip the update of what it owns.
func skipUpdate(rank int) fault.Fault {
	return fault.OnUpdate(func(u *fault.Update) {
		if u.Rank != rank {
			u.Do()
		}
	})
}

// swapMoments makes one rank take its first moments for the second ones.
func swapMoments(rank int) fault.Fault {
	return fault.OnUpdate(func(u *fault.Update) {
		if u.Rank == rank {
			u.Moments = slices.Clone(u.Moments)
			slices.Reverse(u.Moments)
		}
		u.Do()
	})
}

// announceTwice announces each use of a unit (its index in the layout) in a
// phase twice on one rank (on all, if rank is negative), and its end once: what
// is made for the second use is never given back.
func announceTwice(rank, unit int, ph model.Phase) fault.Fault {
	return fault.OnUpdater(rank, func(_ kernels.Backend, u parallel.Updater) parallel.Updater { return &twice{u, unit, ph} })
}

type twice struct {
	parallel.Updater
	unit  int
	phase model.Phase
}

func (t *twice) Before(ctx context.Context, unit int, ph model.Phase) error {
	if err := t.Updater.Before(ctx, unit, ph); err != nil || unit != t.unit || ph != t.phase {
		return err
	}
	return t.Updater.Before(ctx, unit, ph)
}

// releaseEarly poisons the buffer that holds the weights of one rank's n-th
// product of a row-major matrix with a transposed one, right after it: as if
// the unit were released while its pass goes on.
func releaseEarly(rank, n int) fault.Fault {
	return fault.AfterProduct(rank, n, func(be kernels.Backend, _, w kernels.Tensor) {
		be.Fill(kernels.Flat(w.Buf), math.NaN())
	})
}

// cut changes how ranks cut their state, bucket by bucket.
func cut(change func(rank int, s *parallel.Bucket)) fault.Fault {
	return fault.OnSegments(func(rank int, buckets []parallel.Bucket) []parallel.Bucket {
		buckets = slices.Clone(buckets)
		for i := range buckets {
			change(rank, &buckets[i])
		}
		return buckets
	})
}

// give makes a rank of the group the owner of a bucket; the group's size stands
// for no rank.
func give(s *parallel.Bucket, owner int) {
	bounds := make([]int, len(s.Bounds))
	for r := owner + 1; r < len(bounds); r++ {
		bounds[r] = s.Len()
	}
	s.Bounds = bounds
}

// remainderLast cuts every bucket into equal shards and gives the last rank
// what is left over.
func remainderLast() fault.Fault {
	return cut(func(_ int, s *parallel.Bucket) {
		size := len(s.Bounds) - 1
		bounds := make([]int, size+1)
		for r := range size {
			bounds[r] = s.Len() / size * r
		}
		bounds[size] = s.Len()
		s.Bounds = bounds
	})
}

// secondOwner makes one rank believe that a bucket is its own and not owner's;
// it still receives what the true owner broadcasts.
func secondOwner(bucket string, rank, owner int) fault.Fault {
	believes := cut(func(r int, s *parallel.Bucket) {
		if r == rank && s.Name == bucket {
			give(s, rank)
		}
	})
	its := func(c *fault.Call) bool { return updated(c) && c.Rank == rank && c.Label.Tensor == bucket }
	return fault.All(believes, fault.OnCalls(its, func(c *fault.Call) error {
		c.Peer = owner
		return c.Do()
	}))
}

// allOnFirst gives every bucket to rank 0.
func allOnFirst() fault.Fault {
	return cut(func(_ int, s *parallel.Bucket) { give(s, 0) })
}

// noOwner leaves a bucket without an owner: the last rank broadcasts what it
// has.
func noOwner(bucket string) fault.Fault {
	return cut(func(_ int, s *parallel.Bucket) {
		if s.Name == bucket {
			give(s, len(s.Bounds)-1)
		}
	})
}
