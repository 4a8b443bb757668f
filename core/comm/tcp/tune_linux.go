package tcp

import "golang.org/x/sys/unix"

// calm chooses reno on loopback: bbr, the default of some systems, paces what needs no
// pacing.
func calm(fd int) { _ = unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, "reno") }
