package fault

import (
	"context"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
)

// onGroup decorates every rank's communicators of one group.
func onGroup(p *launch.Parts, group names.Axis, decorate func(rank int, c comm.Communicator) comm.Communicator) {
	before := p.Comm
	p.Comm = func(rank int, g names.Axis, c comm.Communicator) comm.Communicator {
		if before != nil {
			c = before(rank, g, c)
		}
		if g != group {
			return c
		}
		return decorate(rank, c)
	}
}

// Places of a block's all-reduces within a micro-batch, on one stage.
const (
	AttnSum     = iota // forward, output of attention
	MLPSum             // forward, output of the MLP
	MLPGradSum         // backward, input gradient of gate and up
	AttnGradSum        // backward, input gradient of q, k and v
	blockSums
)

// onBlockSum replaces one of a block's four all-reduces over the
// tensor-parallel ranks, in every micro-batch; there must be one stage.
func onBlockSum(p *launch.Parts, unit string, place int, f func(c comm.Communicator, ctx context.Context, x kernels.Tensor, op kernels.Op) error) {
	onGroup(p, names.TP, func(_ int, c comm.Communicator) comm.Communicator {
		seen := occurrences{}
		return &hooked{Communicator: c, allReduce: func(ctx context.Context, x kernels.Tensor, op kernels.Op) error {
			if u, n := seen.step(ctx); u == unit && n%blockSums == place {
				return f(c, ctx, x, op)
			}
			return c.AllReduce(ctx, x, op)
		}}
	})
}

// SkipBlockSum leaves one of a block's four sums over tensor-parallel ranks
// partial on all ranks.
func SkipBlockSum(unit string, place int) Fault {
	return func(p *launch.Parts) {
		onBlockSum(p, unit, place, func(comm.Communicator, context.Context, kernels.Tensor, kernels.Op) error { return nil })
	}
}

// ExtraReduction follows one of a block's sums by a maximum over the same ranks,
// which changes no bit: all have the sum already.
func ExtraReduction(unit string, place int) Fault {
	return func(p *launch.Parts) {
		onBlockSum(p, unit, place, func(c comm.Communicator, ctx context.Context, x kernels.Tensor, op kernels.Op) error {
			if err := c.AllReduce(ctx, x, op); err != nil {
				return err
			}
			return c.AllReduce(ctx, x, kernels.Max)
		})
	}
}

// SkipGroup swallows every all-reduce of a group.
func SkipGroup(group names.Axis) Fault {
	return func(p *launch.Parts) {
		onGroup(p, group, func(_ int, c comm.Communicator) comm.Communicator {
			return &hooked{Communicator: c, allReduce: func(context.Context, kernels.Tensor, kernels.Op) error { return nil }}
		})
	}
}

// biased is a backend that adds the bias of a residual sum several times.
type biased struct {
	kernels.Backend
	times int
}

func (b *biased) Residual(dst, x, y, bias kernels.Tensor) {
	for i := 1; i < b.times && !bias.Absent(); i++ {
		b.AddBias(y, bias)
	}
	b.Backend.Residual(dst, x, y, bias)
}

// BiasTimes adds row-parallel biases so many times, as each of that many ranks
// does that adds it before the sum.
func BiasTimes(times int) Fault {
	return func(p *launch.Parts) {
		onBackend(p, func(_ int, be kernels.Backend) kernels.Backend { return &biased{be, times} })
	}
}

// shifted is a backend whose embedding begins some rows off.
type shifted struct {
	kernels.Backend
	by int
}

func (s *shifted) Embedding(x, table kernels.Tensor, tokens []int32, first int) {
	s.Backend.Embedding(x, table, tokens, first+s.by)
}

// ShiftVocabulary makes one rank look its part of the vocabulary up some rows
// off: tokens outside count as inside, and those inside get a neighbour's row.
func ShiftVocabulary(rank, by int) Fault {
	return func(p *launch.Parts) {
		onBackend(p, func(r int, be kernels.Backend) kernels.Backend {
			if r != rank {
				return be
			}
			return &shifted{be, by}
		})
	}
}

// doubled is a backend that adds gradients of norm weights twice; where there is
// no memory for the surplus result it does not, and the run shows no fault.
type doubled struct{ kernels.Backend }

func (d *doubled) RMSNormGrad(dx, dw, dy, x, rstd, w, res kernels.Tensor) {
	if buf, err := d.Alloc(dx.Len()); err == nil {
		d.Backend.RMSNormGrad(kernels.Flat(buf).As(dx.Rows, dx.Cols), dw, dy, x, rstd, w, res)
		d.Free(buf)
	}
	d.Backend.RMSNormGrad(dx, dw, dy, x, rstd, w, res)
}

// DoubleNormGrads adds every gradient of a norm weight twice on one rank (on
// all, if rank is negative), as a sum over ranks that hold the same gradient
// does.
func DoubleNormGrads(rank int) Fault {
	return func(p *launch.Parts) {
		onBackend(p, func(r int, be kernels.Backend) kernels.Backend {
			if rank >= 0 && r != rank {
				return be
			}
			return &doubled{be}
		})
	}
}

// rotated is a backend one of whose writes is rotated.
type rotated struct {
	kernels.Backend
	n, by, seen int
}

func (r *rotated) Write(dst kernels.Tensor, src []float32) {
	if r.seen == r.n {
		src = append(src[r.by:len(src):len(src)], src[:r.by]...)
	}
	r.seen++
	r.Backend.Write(dst, src)
}

// RotateSlice makes one rank's n-th initial parameter (from 0, in the order of
// its layout) begin so many elements late, its first ones behind its last.
func RotateSlice(rank, n, by int) Fault {
	return func(p *launch.Parts) {
		onBackend(p, func(r int, be kernels.Backend) kernels.Backend {
			if r != rank {
				return be
			}
			return &rotated{Backend: be, n: n, by: by}
		})
	}
}
