//go:build !unix

package step

import "time"

// Used is 0 where processor time is not to be had.
func Used() time.Duration { return 0 }
