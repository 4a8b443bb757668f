package suite

import (
	"context"

	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/drill"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
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
		m("mismatch-accepted", "7", "star of 3 ranks", trimToPeers(4),
			"a rank that calls with more elements than its peers is served with a part of them (pytorch/pytorch#75902)"),
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

// onAllReduce replaces every all-reduce of the world.
func onAllReduce(do func(*fault.Call) error) fault.Fault {
	return fault.OnCalls(func(c *fault.Call) bool { return c.Op == names.OpAllReduce }, do)
}

// loseContribution clears one rank's elements before every sum.
func loseContribution(rank int) fault.Fault {
	return onAllReduce(func(c *fault.Call) error {
		if c.Rank == rank && c.Reduction == kernels.Sum {
			c.Backend.Fill(c.X, 0)
		}
		return c.Do()
	})
}

// loseTail reduces only as many elements as the ranks divide evenly.
func loseTail() fault.Fault {
	return onAllReduce(func(c *fault.Call) error {
		c.X = c.X.Range(0, c.X.Len()-c.X.Len()%c.Comm.Size())
		return c.Do()
	})
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

// flipAfter flips a bit of the last element that one rank gets from its n-th
// all-reduce (from 0; empty ones are not counted).
func flipAfter(rank, n int, bit uint) fault.Fault {
	return func(p *launch.Parts) {
		calls := 0
		onAllReduce(func(c *fault.Call) error {
			if err := c.Do(); err != nil || c.Rank != rank || c.X.Len() == 0 {
				return err
			}
			calls++
			if calls != n+1 {
				return nil
			}
			return fault.Flip(c.Backend, c.X.Range(c.X.Len()-1, c.X.Len()), bit)
		})(p)
	}
}

// descending adds the ranks in descending order.
func descending(c *fault.Call) error { return c.Within(0, -c.Comm.Rank()) }

// rootOfWorld makes sub-groups broadcast from the rank after the one asked for.
func rootOfWorld() fault.Fault {
	return fault.OnComm(func(_ int, _ names.Axis, c comm.Communicator) comm.Communicator { return world{c} })
}

type world struct{ comm.Communicator }

func (w world) Split(ctx context.Context, color, key int) (comm.Communicator, error) {
	c, err := w.Communicator.Split(ctx, color, key)
	if c == nil || err != nil {
		return c, err
	}
	return subgroup{c}, nil
}

type subgroup struct{ comm.Communicator }

func (s subgroup) Broadcast(ctx context.Context, x kernels.Tensor, root int) error {
	return s.Communicator.Broadcast(ctx, x, (root+1)%s.Size())
}

// overwriteInPlace clears the output of a reduce-scatter before the input is
// read, which shows where the output is part of the input.
func overwriteInPlace() fault.Fault {
	scatters := func(c *fault.Call) bool { return c.Op == names.OpReduceScatter && c.X.Buf == c.From.Buf }
	return fault.OnCalls(scatters, func(c *fault.Call) error {
		c.Backend.Fill(c.X, 0)
		return c.Do()
	})
}
