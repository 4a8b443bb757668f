package suite

import (
	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/kernels"
)

// accumulated leaves every rank's gradient of a step in that of the next.
func accumulated() fault.Fault {
	return func(p *launch.Parts) {
		type place struct{ off, n int }
		var ranks fault.PerRank[map[place][]float32]
		fault.OnUpdate(func(u *fault.Update) {
			of := ranks.At(u.Rank)
			if *of == nil {
				*of = map[place][]float32{}
			}
			at, g := place{u.W.Off, u.W.Len()}, make([]float32, u.G.Len())
			if err := u.Backend.Read(g, u.G); err != nil {
				return // the device's own failure ends the run
			}
			for i, v := range (*of)[at] {
				g[i] += v
			}
			(*of)[at] = g
			u.Backend.Write(u.G, g)
			u.Do()
		})(p)
	}
}

// countedPerTensor moves the optimizer's step number with every call.
func countedPerTensor() fault.Fault {
	return func(p *launch.Parts) {
		var calls fault.PerRank[int]
		fault.OnUpdate(func(u *fault.Update) {
			n := calls.At(u.Rank)
			u.Step.T = *n
			*n++
			u.Do()
		})(p)
	}
}

// ofAllPositions divides the loss's gradient by all positions, also those without
// a target; c is the run's configuration.
func ofAllPositions(c spec.Config) fault.Fault {
	n := 1 / float64(c.Sequences*c.Model.SeqLen)
	return fault.OnBackend(fault.Every, func(be kernels.Backend) kernels.Backend { return &scaledLoss{be, func(float64) float64 { return n }} })
}

// scaledLoss is a backend that takes another number of valid tokens.
type scaledLoss struct {
	kernels.Backend
	of func(invN float64) float64
}

func (s *scaledLoss) CrossEntropy(nll, z, sum, most, target kernels.Tensor, targets []int32, first int, invN float64) {
	s.Backend.CrossEntropy(nll, z, sum, most, target, targets, first, s.of(invN))
}

// afterFirst skips a kind of reduction from the second step on: buckets that
// still point at the storage of the first.
func afterFirst(unit string) fault.Fault {
	all := fault.Reductions(unit, -1)
	return fault.OnCalls(func(c *fault.Call) bool { return all(c) && c.N > 0 }, fault.Skip)
}

// noGradientAbove makes a block's input gradient 0: the units before it learn
// nothing through it.
func noGradientAbove() fault.Fault {
	return fault.OnBackend(fault.Every, func(be kernels.Backend) kernels.Backend { return &deafNorm{be} })
}

type deafNorm struct{ kernels.Backend }

func (d *deafNorm) RMSNormGrad(dx, dw, dy, x, rstd, w, res kernels.Tensor) {
	d.Backend.RMSNormGrad(dx, dw, dy, x, rstd, w, res)
	if res.Absent() { // the final norm's
		d.Fill(dx, 0)
	}
}

// lastRowsLost leaves the last row out of every gradient of a norm weight.
func lastRowsLost() fault.Fault {
	return fault.OnBackend(fault.Every, func(be kernels.Backend) kernels.Backend { return &floored{be} })
}

type floored struct{ kernels.Backend }

func (f *floored) RMSNormGrad(dx, dw, dy, x, rstd, w, res kernels.Tensor) {
	n := dy.Rows - 1
	if n < 1 {
		f.Backend.RMSNormGrad(dx, dw, dy, x, rstd, w, res)
		return
	}
	buf, err := f.Alloc(dw.Len())
	if err != nil {
		return // the device's own failure ends the run
	}
	defer f.Free(buf)
	lost := kernels.Flat(buf).As(dw.Rows, dw.Cols)
	rows := func(t kernels.Tensor, lo, hi int) kernels.Tensor {
		if t.Absent() {
			return t
		}
		t.Off += lo * t.Stride
		t.Rows = hi - lo
		return t
	}
	cut := func(t kernels.Tensor, lo, hi int) kernels.Tensor { return t.Range(lo, hi) }
	f.Backend.RMSNormGrad(rows(dx, 0, n), dw, rows(dy, 0, n), rows(x, 0, n), cut(rstd, 0, n), w, rows(res, 0, n))
	f.Backend.RMSNormGrad(rows(dx, n, n+1), lost, rows(dy, n, n+1), rows(x, n, n+1), cut(rstd, n, n+1), w, rows(res, n, n+1))
}

// everyPositionFromZero gives all positions of rank's sequences the first one's
// angles.
func everyPositionFromZero(rank int) fault.Fault {
	return fault.OnBackend(rank, func(be kernels.Backend) kernels.Backend { return &shiftless{be} })
}

type shiftless struct{ kernels.Backend }

func (s *shiftless) Rope(x, cos, sin kernels.Tensor, inverse bool) {
	cos.Rows, sin.Rows = 1, 1
	s.Backend.Rope(x, cos, sin, inverse)
}

// strided reduces half of a gradient: what a transport reaches that takes a view
// with a stride for a contiguous one.
func strided(unit string) fault.Fault {
	return fault.OnCalls(fault.Reductions(unit, 1), func(c *fault.Call) error {
		n := c.X.Len() / 2
		c.X = c.X.Range(0, n) // the elements that a contiguous read of every other one reaches
		return c.Do()
	})
}
