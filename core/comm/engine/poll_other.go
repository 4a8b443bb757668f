//go:build unix && !linux

package engine

import (
	"time"

	"golang.org/x/sys/unix"
)

// poll waits for events of descriptors, for a while at most, in whole milliseconds.
func poll(fds []unix.PollFd, atMost time.Duration) error {
	_, err := unix.Poll(fds, int((max(atMost, 0)+time.Millisecond-1)/time.Millisecond))
	return err
}
