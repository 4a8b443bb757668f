//go:build !amd64

package cpu

// detect finds no assembly for this architecture.
func detect() []*isa { return nil }
