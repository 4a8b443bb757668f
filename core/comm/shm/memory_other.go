//go:build !linux

package shm

import "github.com/lockstep-ml/lockstep/kernels"

// Memory is none: only Linux has what other processes can read and nobody can cut off.
func Memory() (kernels.Pool, error) { return nil, nil }
