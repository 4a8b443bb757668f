//go:build !unix

package shm

import (
	"context"
	"errors"

	"github.com/lockstep-ml/lockstep/core/comm"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Local would be a comm.World over shared memory.
func Local(context.Context, int, func(rank int) kernels.Backend, comm.Options) ([]comm.Communicator, error) {
	return nil, errors.New("shm: shared memory between ranks needs Linux")
}
