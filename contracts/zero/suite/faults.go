package suite

import (
	"context"
	"math"
	"slices"

	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/core/data"
	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/parallel"
	"github.com/lockstep-ml/lockstep/kernels"
)

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
	return fault.OnBuckets(func(rank int, buckets []parallel.Bucket) []parallel.Bucket {
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

// lastStepAgain answers a step, and all that follow, with the one before.
func lastStepAgain(step int) func(fault.Share) ([]data.Sequence, []int64) {
	return func(s fault.Share) ([]data.Sequence, []int64) {
		if s.Step >= step {
			s.Step--
		}
		return s.Do()
	}
}
