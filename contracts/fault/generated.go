package fault

import (
	"slices"

	"github.com/lockstep-ml/lockstep/core/model"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/parallel"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/kernels"
)

// collective breaks a kind of collective in every way.
func (g *generator) collective(k kind) {
	id := k.String()
	if k.op == names.OpBroadcast {
		if k.tensor == model.FinalUnit && g.cfg.Model.Tied {
			return // a norm's weights are 1, whatever the seed
		}
		// All ranks make the same initial weights, so that a broadcast of them shows
		// nothing unless one has others; twice it gives what it gave.
		dims := g.cfg.Plan.Dims()
		seeds := OnConfig(func(rank int, c *spec.Config) { c.Seed += uint64(dims.Coord(rank).DP) })
		g.add(Collectives, id+":skipped", All(seeds, OnCalls(k.is, Skip)), "%s is left out, and every replica has a seed of its own", id)
		return
	}
	g.add(Collectives, id+":skipped", OnCalls(k.is, Skip), "%s is left out", id)
	g.add(Collectives, id+":doubled", OnCalls(k.is, Twice), "%s is done twice", id)
	if k.reduces() {
		g.add(Collectives, id+":reduction", OnCalls(k.is, otherReduction), "%s is done with another reduction", id)
	}
	d := g.cfg.Plan.Dims()
	if d.DP < 2 || d.TP < 2 || k.op == message {
		return // there is no other group of the same size
	}
	others := map[names.Axis]names.Axis{names.DP: names.TP, names.TP: names.DP, names.PP: names.TP}
	if other, ok := others[k.group]; ok {
		g.add(Collectives, id+":group", OnGroup(other, k.is), "%s is done in group %s", id, other)
	}
}

// otherReduction does a call with the maximum for a sum and the reverse.
func otherReduction(c *Call) error {
	if c.Reduction == kernels.Sum {
		c.Reduction = kernels.Max
	} else {
		c.Reduction = kernels.Sum
	}
	return c.Do()
}

// bounds moves the inner bounds of a kind of collective, on all ranks alike.
func (g *generator) bounds(k kind) {
	if !k.bounded() {
		return
	}
	for _, by := range []int{-1, 1} {
		name := map[int]string{-1: "early", 1: "late"}[by]
		g.add(Bounds, k.String()+":"+name, OnCalls(k.is, func(c *Call) error { return moved(c, by) }),
			"the first inner bound of %s is one element %s", k, name)
	}
}

// moved does a call with its first inner bound moved, as a rank does that counts
// from another place: every rank has a buffer of the moved size, and what does not
// fit its own is lost.
func moved(c *Call, by int) error {
	b := slices.Clone(c.Bounds)
	if len(b) < 3 || b[1]+by < b[0] || b[1]+by > b[2] {
		return c.Do()
	}
	b[1] += by
	r := c.Comm.Rank()
	if c.Op == names.OpReduceScatter {
		return c.around(&c.X, b, b[r+1]-b[r])
	}
	return c.around(&c.From, b, b[r+1]-b[r])
}

// around does the call with n elements in place of those of x, which is the slice
// of this rank: what both have is copied before and after.
func (c *Call) around(x *kernels.Tensor, bounds []int, n int) error {
	buf, err := c.Backend.Alloc(n)
	if err != nil {
		return err
	}
	defer c.Backend.Free(buf)
	own, both := *x, min(n, x.Len())
	*x, c.Bounds = kernels.Flat(buf), bounds
	c.Backend.Copy(x.Range(0, both), own.Range(0, both))
	if err := c.Do(); err != nil || c.Op != names.OpReduceScatter {
		return err
	}
	c.Backend.Copy(own.Range(0, both), x.Range(0, both))
	return nil
}

// shards moves the first inner bound of every shard.
func (g *generator) shards() {
	if g.cfg.Plan.Zero == 0 {
		return
	}
	for _, by := range []int{-1, 1} {
		name := map[int]string{-1: "early", 1: "late"}[by]
		cut := func(only int) Fault {
			return OnBuckets(func(rank int, all []parallel.Bucket) []parallel.Bucket {
				out := slices.Clone(all)
				for i := range out {
					b := slices.Clone(out[i].Bounds)
					if among(only, rank) && len(b) > 2 && b[1]+by >= b[0] && b[1]+by <= b[2] {
						b[1] += by
						out[i].Bounds = b
					}
				}
				return out
			})
		}
		g.add(Bounds, "shards:"+name, cut(Every), "every shard of rank 1 begins one element %s", name)
		g.add(Bounds, "shards:one-rank-"+name, cut(1), "rank 1 alone believes that its shards begin one element %s", name)
	}
}

// scale is how much too large a term is: enough to change most roundings, too
// little to see in a loss.
const scale = 1 + 1.0/1024

// gradient breaks a contribution to a gradient in every way.
func (g *generator) gradient(t term) {
	on := func(do func(c contribution)) Fault {
		return onTerms(func(x term, c contribution) {
			if x != t {
				c.Do()
				return
			}
			do(c)
		})
	}
	id := t.String()
	g.add(Gradients, id+":dropped", on(func(contribution) {}), "contribution %d of %s to a gradient of unit %d is left out", t.n, t.kernel, t.unit)
	g.add(Gradients, id+":doubled", on(func(c contribution) { c.Do(); c.Do() }), "contribution %d of %s to a gradient of unit %d is added twice", t.n, t.kernel, t.unit)
	g.add(Gradients, id+":scaled", on(func(c contribution) {
		c.Do()
		c.be.Scale(c.into, c.into, scale)
	}), "a gradient of unit %d is scaled by %v after contribution %d of %s", t.unit, scale, t.n, t.kernel)
}
