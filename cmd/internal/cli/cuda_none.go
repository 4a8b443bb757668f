//go:build !cuda

package cli

import "github.com/lockstep-ml/lockstep/gpu"

// openCUDA is in the build with the tag cuda.
func openCUDA(gpu.Choice) (*Opened, error) {
	return nil, gpu.NotBuilt()
}
