package suite

import (
	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/kernels"
)

// normOfFirst makes the norm one of the first rank's squares alone, on all ranks.
func normOfFirst() fault.Fault {
	return fault.OnCalls(fault.Norms, func(c *fault.Call) error {
		if c.Rank > 0 {
			clear(c.Ints)
		}
		return c.Do()
	})
}

// stepAnyway makes one rank take a norm that is not finite for 0, so that it
// steps where the others do not.
func stepAnyway(rank int) fault.Fault {
	return fault.OnCalls(fault.Norms, func(c *fault.Call) error {
		err := c.Do()
		if sum := (kernels.SquareSum)(c.Ints); err == nil && c.Rank == rank && sum[kernels.SquareInf]+sum[kernels.SquareNaN] > 0 {
			clear(c.Ints)
		}
		return err
	})
}

// countSkipped makes all ranks count a skipped step as an optimizer step.
func countSkipped() fault.Fault {
	return func(p *launch.Parts) {
		var steps fault.PerRank[int]
		fault.OnCounter(func(rank, _ int) int {
			n := steps.At(rank)
			*n++
			return *n
		})(p)
	}
}
