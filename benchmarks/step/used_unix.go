//go:build unix

package step

import (
	"syscall"
	"time"
)

// Used is the processor time of this process so far, of all threads: on a
// machine that is not alone, a better measure than the clock.
func Used() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
