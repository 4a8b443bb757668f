//go:build cuda

package cli

import (
	"errors"

	"github.com/lockstep-ml/lockstep/gpu"
	"github.com/lockstep-ml/lockstep/kernels"
)

// openCUDA opens devices, over which ranks are dealt in turn: rank r computes on the r mod n-th.
func openCUDA(c gpu.Choice) (func(rank int) (kernels.Backend, error), error) {
	devices, err := gpu.Open(c)
	if err != nil {
		return nil, err
	}
	return nil, errors.Join(errors.New("this program has no kernels for "+devices[0].String()), gpu.Close(devices))
}
