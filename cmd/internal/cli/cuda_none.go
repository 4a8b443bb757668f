//go:build !cuda

package cli

import (
	"github.com/lockstep-ml/lockstep/gpu"
	"github.com/lockstep-ml/lockstep/kernels"
)

// openCUDA is in the build with the tag cuda.
func openCUDA(gpu.Choice) (func(rank int) (kernels.Backend, error), error) {
	return nil, gpu.NotBuilt()
}
