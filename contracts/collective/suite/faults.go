package suite

import (
	"context"

	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/kernels"
)

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

// asPeers makes calls that do not fit those of the peers, of which change knows how
// they differ, like theirs, as a transport that does not compare them serves them.
func asPeers(op string, change func(*fault.Call)) fault.Fault {
	return fault.OnCalls(func(c *fault.Call) bool { return c.Op == op }, func(c *fault.Call) error {
		change(c)
		return c.Do()
	})
}

// misfitCount is the length of most vectors of misfits; a drill has none of it.
const misfitCount = 24

// trimmed cuts what a message or a collective has more than its peers.
func trimmed(c *fault.Call) {
	if c.X.Len() == misfitCount+1 {
		c.X = c.X.Range(0, misfitCount)
	}
}

// summed takes the sum where another reduction is asked for.
func summed(c *fault.Call) {
	if c.From.Len() == misfitCount || c.X.Len() == misfitCount {
		c.Reduction = kernels.Sum
	}
}

// byShardRule gathers parts where the shard rule has them, whatever the bounds: on
// all ranks, those that agree too.
func byShardRule(c *fault.Call) {
	rule := shard.Bounds(misfitCount, c.Comm.Size())
	if r := c.Comm.Rank(); c.X.Len() == misfitCount && c.From.Len() == rule[r+1]-rule[r] {
		c.Bounds = rule
	}
}

// fromFirst broadcasts from the first rank.
func fromFirst(c *fault.Call) {
	if c.X.Len() == misfitCount {
		c.Peer = 0
	}
}

// ofAnyone makes a receive of another rank than the one that sends wait for that
// one: of rank 0 on rank 1, which asks for rank 2's.
func ofAnyone(c *fault.Call) {
	if c.X.Len() == misfitCount && c.Comm.Rank() == 1 && c.Peer == 2 {
		c.Peer = 0
	}
}

// firstElements reduces only so many elements of longer vectors.
func firstElements(n int) fault.Fault {
	return onAllReduce(func(c *fault.Call) error {
		c.X = c.X.Range(0, min(n, c.X.Len()))
		return c.Do()
	})
}

// wrapRoots broadcasts from the root modulo n.
func wrapRoots(n int) fault.Fault {
	return fault.OnCalls(func(c *fault.Call) bool { return c.Op == names.OpBroadcast }, func(c *fault.Call) error {
		c.Peer %= n
		return c.Do()
	})
}

// loseDownward loses messages from a rank to one before it that is no neighbour.
func loseDownward() fault.Fault {
	receives := func(c *fault.Call) bool {
		n, distance := c.Comm.Size(), c.Peer-c.Comm.Rank()
		return c.Op == names.OpRecv && distance > 1 && distance < n-1
	}
	return fault.OnCalls(receives, func(c *fault.Call) error {
		if err := c.Do(); err != nil {
			return err
		}
		c.Backend.Fill(c.X, 0)
		return nil
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

// beyond does do in groups of more than n ranks.
func beyond(n int, do func(*fault.Call) error) func(*fault.Call) error {
	return func(c *fault.Call) error {
		if c.Comm.Size() <= n {
			return c.Do()
		}
		return do(c)
	}
}

// pastChunk loses what reduce-scatters leave of parts of vectors of more than n
// elements, from element n of the vector on.
func pastChunk(n int) fault.Fault {
	return fault.OnCalls(func(c *fault.Call) bool { return c.Op == names.OpReduceScatter }, func(c *fault.Call) error {
		if err := c.Do(); err != nil {
			return err
		}
		first := shard.Bounds(c.From.Len(), c.Comm.Size())[c.Comm.Rank()]
		if c.Bounds != nil {
			first = c.Bounds[c.Comm.Rank()]
		}
		if lost := min(max(n-first, 0), c.X.Len()); lost < c.X.Len() {
			c.Backend.Fill(c.X.Range(lost, c.X.Len()), 0)
		}
		return nil
	})
}

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
