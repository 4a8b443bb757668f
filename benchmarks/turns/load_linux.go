package turns

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of processor time in /proc.
const tick = 10 * time.Millisecond

// Others begins to measure the processor time that is neither idle nor that of this
// process and of those that it started, which are still there at the end: of other
// programs, the system, other machines on this hardware. What it returns says how much
// that was, as a share of all processors.
func Others() (share func() (float64, error), err error) {
	begun := time.Now()
	before, err := taken()
	if err != nil {
		return nil, err
	}
	return func() (float64, error) {
		after, err := taken()
		if err != nil {
			return 0, err
		}
		all := time.Since(begun) * time.Duration(runtime.NumCPU())
		return max(0, float64(all-(after-before))/float64(all)), nil
	}, nil
}

// taken is the processor time that was idle or this process's and its descendants'.
func taken() (time.Duration, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(b), "\n")
	f := strings.Fields(line) // cpu user nice system idle iowait ...
	if len(f) < 6 {
		return 0, fmt.Errorf("/proc/stat begins with %q", line)
	}
	used, parents := processes()
	return time.Duration(number(f[4])+number(f[5])+own(used, parents, os.Getpid())) * tick, nil
}

// own is what a process and its descendants have used.
func own(used, parents map[int]int, self int) (sum int) {
	for pid, t := range used {
		at := pid
		for at > 1 && at != self {
			at = parents[at]
		}
		if at == self {
			sum += t
		}
	}
	return sum
}

// processes are the ticks that each process has used, and the parent of each.
func processes() (used, parents map[int]int) {
	used, parents = map[int]int{}, map[int]int{}
	all, _ := os.ReadDir("/proc") // without it nothing is this process's, and all rounds are dropped
	for _, e := range all {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		b, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // it has ended
		}
		// The name, in brackets, may hold anything.
		f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])) // state ppid ...
		if len(f) < 13 {
			continue
		}
		parents[pid], used[pid] = number(f[1]), number(f[11])+number(f[12])
	}
	return used, parents
}

// number is a field of /proc.
func number(s string) int {
	n, _ := strconv.Atoi(s) // the kernel writes nothing else
	return n
}
