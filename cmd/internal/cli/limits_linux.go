package cli

import (
	"fmt"
	"math"
	"os"
	"syscall"
)

// addressSpace is how many more bytes this process may map, as ulimit -v and -d
// say; ok is false where they say nothing.
func addressSpace() (bytes uint64, ok bool) {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, false
	}
	var pages [6]uint64 // size resident shared text lib data
	if n, _ := fmt.Sscan(string(b), &pages[0], &pages[1], &pages[2], &pages[3], &pages[4], &pages[5]); n < len(pages) {
		return 0, false
	}
	bytes = math.MaxUint64
	for resource, used := range map[int]uint64{syscall.RLIMIT_AS: pages[0], syscall.RLIMIT_DATA: pages[5]} {
		var limit syscall.Rlimit
		if syscall.Getrlimit(resource, &limit) != nil || limit.Cur > math.MaxInt64 {
			continue // unlimited
		}
		used *= uint64(os.Getpagesize())
		bytes = min(bytes, limit.Cur-min(limit.Cur, used))
	}
	return bytes, bytes < math.MaxUint64
}
