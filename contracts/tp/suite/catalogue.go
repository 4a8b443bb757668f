package suite

import (
	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
)

// lossTimes multiplies the loss's gradient on all ranks.
func lossTimes(factor float64) fault.Fault {
	return fault.OnBackend(fault.Every, func(be kernels.Backend) kernels.Backend { return &scaledLoss{be, factor} })
}

type scaledLoss struct {
	kernels.Backend
	factor float64
}

func (s *scaledLoss) CrossEntropy(nll, z, sum, most, target kernels.Tensor, targets []int32, first int, invN float64) {
	s.Backend.CrossEntropy(nll, z, sum, most, target, targets, first, invN*s.factor)
}

// halvedNormGrads halves what a micro-batch adds to the gradient of a norm weight,
// on all ranks: the mean over two of them.
func halvedNormGrads() fault.Fault {
	return fault.OnBackend(fault.Every, func(be kernels.Backend) kernels.Backend { return &halved{be} })
}

type halved struct{ kernels.Backend }

func (h *halved) RMSNormGrad(dx, dw, dy, x, rstd, w, res kernels.Tensor) {
	h.Backend.RMSNormGrad(dx, dw, dy, x, rstd, w, res)
	h.Scale(dw, dw, 0.5)
}

// denominators selects the sums of exponentials over a vocabulary that is split.
func denominators(c *fault.Call) bool {
	return c.Group == names.TP && c.Op == names.OpAllReduce && c.Label.Tensor == "head" && c.Reduction == kernels.Sum
}
