package fault

import (
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/shard"
	"github.com/lockstep-ml/lockstep/core/trace"
)

// OfReplicas says whether the call is between data-parallel ranks or in the whole
// world.
func (c *Call) OfReplicas() bool { return c.Group == names.DP || c.Group == names.World }

// Calls selects the calls of one operation for one tensor between replicas.
func Calls(op, tensor string) func(*Call) bool {
	return func(c *Call) bool { return c.OfReplicas() && c.Op == op && c.Label.Tensor == tensor }
}

// Reductions selects the all-reduces of a unit's gradient over replicas, in one
// step (in every step, if step is negative).
func Reductions(unit string, step int) func(*Call) bool {
	all := Calls(names.OpAllReduce, unit)
	return func(c *Call) bool { return all(c) && (step < 0 || c.N == step) }
}

// Norms selects the sums of squares over all ranks.
func Norms(c *Call) bool {
	return c.Group == names.World && c.Op == names.OpAllReduceInt && c.Label.Tensor == trace.Norm
}

// Skip leaves a call out.
func Skip(*Call) error { return nil }

// Twice does a call twice.
func Twice(c *Call) error {
	if err := c.Do(); err != nil {
		return err
	}
	return c.Do()
}

// FarFirst adds the ranks in another order: the tree over the ranks in
// bit-reversed order, as halving from the far distance does.
func FarFirst(c *Call) error {
	key, i := 0, c.Comm.Rank()
	for n := c.Comm.Size(); n > 1; n /= 2 {
		key, i = key<<1|i&1, i/2
	}
	return c.Within(0, key)
}

// LocalNorm leaves every rank with the squares of its own shard.
func LocalNorm() Fault { return OnCalls(Norms, Skip) }

// FlipBit delivers the reduced gradient of a unit, in one step, to one rank (to
// all, if rank is negative) with one bit of one element flipped.
func FlipBit(rank int, unit string, step, element int, bit uint) Fault {
	return OnCalls(Reductions(unit, step), func(c *Call) error {
		if err := c.Do(); err != nil || !among(rank, c.Rank) {
			return err
		}
		return Flip(c.Backend, c.X.Range(element, element+1), bit)
	})
}

// ReduceAgain reduces every part twice: what the first reduction gave its owner
// enters the second one.
func ReduceAgain() Fault {
	scatters := func(c *Call) bool { return c.OfReplicas() && c.Op == names.OpReduceScatter }
	return OnCalls(scatters, func(c *Call) error {
		first, r := *c, c.Comm.Rank()
		first.X = c.From.Range(c.Bounds[r], c.Bounds[r+1])
		if err := first.Do(); err != nil {
			return err
		}
		return c.Do()
	})
}

// WrapOwners gives the part of every owner from n on in gathers of groups of more
// than n ranks the elements of the part n owners before, as one does that numbers
// owners modulo n.
func WrapOwners(n int) Fault {
	gathers := func(c *Call) bool { return c.Op == names.OpAllGather && c.Comm.Size() > n }
	return OnCalls(gathers, func(c *Call) error {
		if err := c.Do(); err != nil {
			return err
		}
		bounds, err := shard.CheckBounds(c.Bounds, c.X.Len(), c.Comm.Size())
		if err != nil {
			return err
		}
		for r := n; r < c.Comm.Size(); r++ {
			length := min(bounds[r+1]-bounds[r], bounds[r-n+1]-bounds[r-n])
			c.Backend.Copy(c.X.Range(bounds[r], bounds[r]+length), c.X.Range(bounds[r-n], bounds[r-n]+length))
		}
		return nil
	})
}

// StaleSlice gives one rank, in every gather of a unit, the slice that a peer of
// the group sent the first time.
func StaleSlice(rank, peer int, unit string) Fault {
	return func(p *launch.Parts) {
		var first []float32 // of one rank and unit, whose gathers follow each other
		OnCalls(Calls(names.OpAllGather, unit), func(c *Call) error {
			if err := c.Do(); err != nil || c.Rank != rank {
				return err
			}
			slice := c.X.Range(c.Bounds[peer], c.Bounds[peer+1])
			if first != nil {
				c.Backend.Write(slice, first)
				return nil
			}
			first = make([]float32, slice.Len())
			return c.Backend.Read(first, slice)
		})(p)
	}
}
