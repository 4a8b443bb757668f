//go:build !linux

package cli

// addressSpace is known on Linux only.
func addressSpace() (bytes uint64, ok bool) { return 0, false }
