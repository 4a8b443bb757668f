package suite

import (
	"runtime"

	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/kernels"
)

// fixedSeed makes every rank ignore the seed it was given.
func fixedSeed(seed uint64) fault.Fault {
	return fault.OnConfig(func(_ int, c *spec.Config) { c.Seed = seed })
}

// corruptOnOneThread is fault.Corrupt where the process has one thread when it
// is time.
func corruptOnOneThread(rank, n int, bit uint) fault.Fault {
	return fault.AfterProduct(rank, n, func(be kernels.Backend, c, _ kernels.Tensor) {
		if runtime.GOMAXPROCS(0) == 1 {
			_ = fault.Flip(be, c, bit) // a read error shows by itself
		}
	})
}

// lateRate is fault.LearningRate of one step.
func lateRate(step int) fault.Fault {
	return fault.OnUpdate(func(u *fault.Update) {
		if u.Step.T == step {
			u.Step.LR *= 1 + 1e-6
		}
		u.Do()
	})
}

// loseBiasGrads leaves the gradients of all biases 0.
func loseBiasGrads() fault.Fault {
	return fault.OnBackend(fault.Every, func(be kernels.Backend) kernels.Backend { return &biasless{be} })
}

// biasless is a backend that adds up no columns, but for the single one of losses.
type biasless struct{ kernels.Backend }

func (b *biasless) ColumnSum(dst, x kernels.Tensor) {
	if x.Cols == 1 {
		b.Backend.ColumnSum(dst, x)
	}
}
