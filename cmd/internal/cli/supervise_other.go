//go:build !unix

package cli

// Supervise does a command's work and gives its exit code. Here a process that
// runs out of memory ends with the exit code of the Go runtime.
func Supervise(work func() int) int { return work() }
