package main

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// processors are those that this process may use.
func processors() (all []int) {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return nil // nothing is bound
	}
	for i := range 64 * len(set) {
		if set.IsSet(i) {
			all = append(all, i)
		}
	}
	return all
}

// bound starts a process that is bound to a processor from its beginning, as its
// parent's thread is for so long.
func bound(processor int, start func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return err
	}
	one.Set(processor)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return err
	}
	err := start()
	if back := unix.SchedSetaffinity(0, &all); err == nil {
		err = back
	}
	return err
}
