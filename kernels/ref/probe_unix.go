//go:build unix

package ref

import (
	"fmt"
	"math"
	"syscall"
)

// probeFrom is the size in bytes from which an allocation is probed: smaller
// ones are the run-time's everyday work.
const probeFrom = 1 << 28

// probe asks the system for an untouched mapping of that many bytes and gives
// it back. A failed mapping inside make would end the process.
func probe(bytes int64) error {
	if bytes < probeFrom {
		return nil
	}
	if bytes > math.MaxInt {
		return fmt.Errorf("%d bytes: beyond the address space", bytes)
	}
	m, err := syscall.Mmap(-1, 0, int(bytes), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("%d bytes: %w", bytes, err)
	}
	return syscall.Munmap(m)
}
