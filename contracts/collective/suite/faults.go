package suite

import (
	"context"

	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/names"
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
