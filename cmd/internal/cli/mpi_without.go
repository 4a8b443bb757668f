//go:build !mpi

package cli

import "github.com/lockstep-ml/lockstep/core/launch/procs"

// carrier is none: this program is built without MPI.
func carrier() procs.Carrier { return nil }
