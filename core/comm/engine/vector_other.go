//go:build unix && !linux

package engine

import (
	"runtime"

	"golang.org/x/sys/unix"
)

func writev(fd int, parts [][]byte) (int, error) { return unix.Writev(fd, parts) }

func readv(fd int, parts [][]byte) (int, error) { return unix.Readv(fd, parts) }

func yield() { runtime.Gosched() }
