package fault

import (
	"github.com/lockstep-ml/lockstep/contracts/contract"
	"github.com/lockstep-ml/lockstep/contracts/suite"
	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/core/spec"
	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Scalars are mutants in each of which one scalar of a step is wrong on all ranks of a
// run, and what follows from it: a clause that compares scalars must name that one. On
// is a case that clips, with a warm-up; named is what a finding says behind the scalar.
func Scalars(role contract.Role, clause, on, named string) []suite.Mutant {
	m := func(what, id, says string, f Fault) suite.Mutant {
		return suite.Mutant{ID: id, Clause: clause, On: on, At: suite.At(suite.Any, 0, what+named), Break: Into(role, f), Says: says}
	}
	return []suite.Mutant{
		m(trace.Loss, "scalar-loss", "the loss is added up twice as large, its gradient is right", lossDoubled()),
		m(trace.Norm, "scalar-norm", "squares that are summed already are summed over the ranks again", OnCalls(Norms, Twice)),
		m(trace.Coef, "scalar-coef", "all ranks clip at half of the norm", OnConfig(func(_ int, c *spec.Config) { c.Optimizer.Clip /= 2 })),
		m(trace.LR, "scalar-lr", "the learning rate moves twice as fast, and updates are half as large for it", All(Schedule(2), OnUpdate(func(u *Update) {
			u.Step.LR /= 2
			u.Do()
		}))),
		m(trace.Counter, "scalar-counter", "no rank counts the steps that it takes", OnCounter(func(int, int) int { return 0 })),
	}
}

// lossDoubled doubles every token's loss, on all ranks.
func lossDoubled() Fault {
	return OnBackend(Every, func(be kernels.Backend) kernels.Backend {
		return &After{be, func(be kernels.Backend, kernel string, outputs ...kernels.Tensor) {
			if kernel == "CrossEntropy" {
				be.Scale(outputs[0], outputs[0], 2)
			}
		}}
	})
}

// Tokens counts so many valid tokens more in the global batch, on all ranks.
func Tokens(more int64) Fault {
	return OnCalls(Calls(names.OpAllReduceInt, names.Tokens), func(c *Call) error {
		err := c.Do()
		c.Ints[0] += uint64(more)
		return err
	})
}
