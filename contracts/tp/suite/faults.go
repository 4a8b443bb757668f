package suite

import (
	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Places of a block's all-reduces within a micro-batch, on one stage.
const (
	attnSum     = iota // forward, output of attention
	mlpSum             // forward, output of the MLP
	mlpGradSum         // backward, input gradient of gate and up
	attnGradSum        // backward, input gradient of q, k and v
	blockSums
)

// sums selects one of a block's four all-reduces over the tensor-parallel ranks,
// in every micro-batch; there must be one stage.
func sums(unit string, place int) func(*fault.Call) bool {
	return func(c *fault.Call) bool {
		return c.Group == names.TP && c.Op == names.OpAllReduce && c.Label.Tensor == unit && c.N%blockSums == place
	}
}

// thenMax follows a reduction by a maximum over the same ranks, which changes no
// bit: all have the sum already.
func thenMax(c *fault.Call) error {
	if err := c.Do(); err != nil {
		return err
	}
	c.Reduction = kernels.Max
	return c.Do()
}

// ofKV selects the all-reduces over ranks that hold copies of one KV head.
func ofKV(c *fault.Call) bool { return c.Group == names.KV && c.Op == names.OpAllReduce }

// ofSecondReplica is ofKV on the ranks of a second model beside the first of four.
func ofSecondReplica(c *fault.Call) bool { return ofKV(c) && c.Rank >= 4 }

// biasTimes adds row-parallel biases so many times, as each of that many ranks
// does that adds it before the sum.
func biasTimes(times int) fault.Fault {
	return fault.OnBackend(fault.Every, func(be kernels.Backend) kernels.Backend { return &repeating{be, times} })
}

type repeating struct {
	kernels.Backend
	times int
}

func (b *repeating) Residual(dst, x, y, bias kernels.Tensor) {
	for i := 1; i < b.times && !bias.Absent(); i++ {
		b.AddBias(y, bias)
	}
	b.Backend.Residual(dst, x, y, bias)
}

// shiftVocabulary makes one rank look its part of the vocabulary up some rows
// off: tokens outside count as inside, and those inside get a neighbour's row.
func shiftVocabulary(rank, by int) fault.Fault {
	return fault.OnBackend(rank, func(be kernels.Backend) kernels.Backend { return &shifted{be, by} })
}

type shifted struct {
	kernels.Backend
	by int
}

func (s *shifted) Embedding(x, table kernels.Tensor, tokens []int32, first int) {
	s.Backend.Embedding(x, table, tokens, first+s.by)
}

// doubleNormGrads adds every gradient of a norm weight twice on one rank (on
// all, if rank is negative), as a sum over ranks that hold the same gradient
// does. Where there is no memory for the surplus result it does not, and the run
// shows no fault.
func doubleNormGrads(rank int) fault.Fault {
	return fault.OnBackend(rank, func(be kernels.Backend) kernels.Backend { return &doubled{be} })
}

type doubled struct{ kernels.Backend }

func (d *doubled) RMSNormGrad(dx, dw, dy, x, rstd, w, res kernels.Tensor) {
	if buf, err := d.Alloc(dx.Len()); err == nil {
		d.Backend.RMSNormGrad(kernels.Flat(buf).As(dx.Rows, dx.Cols), dw, dy, x, rstd, w, res)
		d.Free(buf)
	}
	d.Backend.RMSNormGrad(dx, dw, dy, x, rstd, w, res)
}

// rotateSlice makes one rank's n-th initial parameter (from 0, in the order of
// its layout) begin so many elements late, its first ones behind its last.
func rotateSlice(rank, n, by int) fault.Fault {
	return fault.OnBackend(rank, func(be kernels.Backend) kernels.Backend { return &rotated{be, n, by} })
}

type rotated struct {
	kernels.Backend
	left, by int // writes before the one that is rotated
}

func (r *rotated) Write(dst kernels.Tensor, src []float32) {
	if r.left == 0 {
		src = append(src[r.by:len(src):len(src)], src[:r.by]...)
	}
	r.left--
	r.Backend.Write(dst, src)
}
