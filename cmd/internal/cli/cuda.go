//go:build cuda

package cli

import (
	"sync"

	"github.com/lockstep-ml/lockstep/gpu"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/cuda"
)

// openCUDA opens devices, over which ranks are dealt in turn: rank r computes on the r mod n-th.
// A rank has a stream of its own, which it keeps from run to run, as compiling the kernels
// takes longer than a small run does. The process's end closes them.
func openCUDA(c gpu.Choice) (func(rank int) (kernels.Backend, error), error) {
	devices, err := gpu.Open(c)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	open := map[int]*cuda.Backend{}
	return func(rank int) (kernels.Backend, error) {
		mu.Lock()
		defer mu.Unlock()
		if b := open[rank]; b != nil {
			return b, nil
		}
		b, err := cuda.New(devices[rank%len(devices)])
		if err != nil {
			return nil, err
		}
		open[rank] = b
		return b, nil
	}, nil
}
