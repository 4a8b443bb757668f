package cli

import (
	"math"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// Memory is how many bytes runs may use: nine tenths of the least of what the
// control group allows or else the machine has, and of what ulimit leaves, or what
// GOMEMLIMIT says where that is less; 0 where nothing is known. The garbage
// collector, which would let a heap of gigabytes double, keeps to it from then on.
// What is left is for scratch that nobody counts.
func Memory() int64 {
	// Without a figure of the machine the limit stays what it was.
	_, _ = memlimit.Set(memlimit.WithProvider(memlimit.ApplyFallback(memlimit.FromCgroup, memlimit.FromSystem)), memlimit.WithRatio(0.9))
	bytes := debug.SetMemoryLimit(-1)
	if left, ok := addressSpace(); ok {
		bytes = min(bytes, max(1, int64(left/10*9)))
		debug.SetMemoryLimit(bytes)
	}
	if bytes < math.MaxInt64 {
		return bytes
	}
	return 0
}
