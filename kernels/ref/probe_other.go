//go:build !unix

package ref

import "fmt"

// largest is the size in bytes that Alloc never exceeds where the system cannot
// be asked: a failed mapping inside make would end the process.
const largest = 1 << 30

func probe(bytes int64) error {
	if bytes > largest {
		return fmt.Errorf("%d bytes: more than %d", bytes, largest)
	}
	return nil
}
