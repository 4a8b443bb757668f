package fault

import (
	"context"
	"slices"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/parallel"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Cut changes how ranks cut their state; segs is a copy.
func Cut(change func(rank int, segs []parallel.Segment)) Fault {
	return func(p *launch.Parts) {
		before := p.Segments
		p.Segments = func(rank int, segs []parallel.Segment) []parallel.Segment {
			if before != nil {
				segs = before(rank, segs)
			}
			segs = slices.Clone(segs)
			change(rank, segs)
			return segs
		}
	}
}

// RemainderLast cuts every segment into equal shards and gives the last rank
// what is left over.
func RemainderLast() Fault {
	return Cut(func(_ int, segs []parallel.Segment) {
		for i := range segs {
			size := len(segs[i].Bounds) - 1
			bounds := make([]int, size+1)
			for r := range size {
				bounds[r] = segs[i].Len() / size * r
			}
			bounds[size] = segs[i].Len()
			segs[i].Bounds = bounds
		}
	})
}

// SecondOwner makes one rank believe that a segment is its own and not owner's;
// it still receives what the true owner broadcasts.
func SecondOwner(segment string, rank, owner int) Fault {
	return All(
		Cut(func(r int, segs []parallel.Segment) {
			for i := range segs {
				if r != rank || segs[i].Name != segment {
					continue
				}
				bounds := make([]int, len(segs[i].Bounds))
				for j := rank + 1; j < len(bounds); j++ {
					bounds[j] = segs[i].Len()
				}
				segs[i].Bounds = bounds
			}
		}),
		func(p *launch.Parts) {
			onComm(p, func(r int, c comm.Communicator) comm.Communicator {
				if r != rank {
					return c
				}
				return &hooked{Communicator: c, broadcast: func(ctx context.Context, x kernels.Tensor, root int) error {
					if l := comm.LabelOf(ctx); l.Tensor == segment && l.Step >= 0 {
						root = owner
					}
					return c.Broadcast(ctx, x, root)
				}}
			})
		})
}

// AllOnFirst gives every segment to rank 0.
func AllOnFirst() Fault {
	return Cut(func(_ int, segs []parallel.Segment) {
		for i := range segs {
			bounds := make([]int, len(segs[i].Bounds))
			for j := 1; j < len(bounds); j++ {
				bounds[j] = segs[i].Len()
			}
			segs[i].Bounds = bounds
		}
	})
}

// NoOwner leaves a segment without an owner: the last rank broadcasts what it
// has.
func NoOwner(segment string) Fault {
	return Cut(func(_ int, segs []parallel.Segment) {
		for i := range segs {
			if segs[i].Name == segment {
				segs[i].Bounds = make([]int, len(segs[i].Bounds))
			}
		}
	})
}

// OtherRoot broadcasts everything, after the initial weights, from the rank
// after its owner.
func OtherRoot() Fault {
	return func(p *launch.Parts) {
		onComm(p, func(_ int, c comm.Communicator) comm.Communicator {
			return &hooked{Communicator: c, broadcast: func(ctx context.Context, x kernels.Tensor, root int) error {
				if comm.LabelOf(ctx).Step >= 0 {
					root = (root + 1) % c.Size()
				}
				return c.Broadcast(ctx, x, root)
			}}
		})
	}
}
