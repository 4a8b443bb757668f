package engine

import (
	"time"

	"golang.org/x/sys/unix"
)

// poll waits for events of descriptors, for a while at most.
func poll(fds []unix.PollFd, atMost time.Duration) error {
	t := unix.NsecToTimespec(int64(max(atMost, 0)))
	_, err := unix.Ppoll(fds, &t, nil)
	return err
}
