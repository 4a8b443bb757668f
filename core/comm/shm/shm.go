//go:build unix

package shm

import (
	"context"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/core/comm/engine"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Name is what reports call shared memory.
const Name = "shared memory"

// Local is a comm.World whose ranks are goroutines of this process and reach each other
// as processes of one host do.
func Local(ctx context.Context, size int, backend func(rank int) kernels.Backend, o comm.Options) ([]comm.Communicator, error) {
	return engine.Local(ctx, size, backend, o, Listen)
}
