package cli

import (
	"math"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// Memory is how many bytes this process may use: what its control group allows,
// else what the machine has; 0 where neither is known. The garbage collector,
// which would let a heap of gigabytes double, is told to keep to nine tenths of
// it, unless GOMEMLIMIT says otherwise.
func Memory() int64 {
	limit := memlimit.ApplyFallback(memlimit.FromCgroup, memlimit.FromSystem)
	bytes, err := limit()
	if err != nil || bytes > math.MaxInt64 {
		return 0
	}
	if _, err := memlimit.Set(memlimit.WithProvider(limit), memlimit.WithRatio(0.9)); err != nil {
		return 0
	}
	return int64(bytes)
}
