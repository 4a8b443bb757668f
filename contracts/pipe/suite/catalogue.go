package suite

import (
	"github.com/lockstep-ml/lockstep/contracts/fault"
	"github.com/lockstep-ml/lockstep/core/data"
)

// lastStageAhead makes a rank take the batch after its own from step 1 on.
func lastStageAhead(rank int) fault.Fault {
	return fault.OnShare(func(s fault.Share) ([]data.Sequence, []int64) {
		if s.Rank == rank && s.Step >= 1 {
			s.Step++
		}
		return s.Do()
	})
}
