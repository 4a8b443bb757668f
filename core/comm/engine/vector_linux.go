package engine

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// writev and readv return at once, after no more than a copy. The scheduler is not told
// of them: it would take that for a wait, and wake another thread to go on meanwhile.

func writev(fd int, parts [][]byte) (int, error) { return vector(unix.SYS_WRITEV, fd, parts) }

func readv(fd int, parts [][]byte) (int, error) { return vector(unix.SYS_READV, fd, parts) }

func vector(trap uintptr, fd int, parts [][]byte) (int, error) {
	var list [2]unix.Iovec
	for i, p := range parts {
		list[i].Base = unsafe.SliceData(p)
		list[i].SetLen(len(p))
	}
	n, _, errno := unix.RawSyscall(trap, uintptr(fd), uintptr(unsafe.Pointer(&list)), uintptr(len(parts)))
	runtime.KeepAlive(parts)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// yield lets other threads have the processor.
func yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
