package cli

import (
	"math"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// Memory is how many bytes runs may use: nine tenths of what the control group
// allows or else the machine has, or what GOMEMLIMIT says; 0 where nothing is
// known. The garbage collector, which would let a heap of gigabytes double, keeps
// to it from then on. What is left is for scratch that nobody counts.
func Memory() int64 {
	// Without a figure of the machine the limit stays what it was.
	_, _ = memlimit.Set(memlimit.WithProvider(memlimit.ApplyFallback(memlimit.FromCgroup, memlimit.FromSystem)), memlimit.WithRatio(0.9))
	if bytes := debug.SetMemoryLimit(-1); bytes < math.MaxInt64 {
		return bytes
	}
	return 0
}
