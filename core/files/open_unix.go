//go:build unix

package files

import "syscall"

// nonBlocking keeps the opening of what became a pipe from waiting for a writer.
const nonBlocking = syscall.O_NONBLOCK
