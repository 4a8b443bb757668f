//go:build cuda

package cuda_test

import (
	"testing"

	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/kerneltest"
)

// BenchmarkKernels times every kernel at the shapes of a training step, under the name of
// the backend, which says whether the device is simulated.
func BenchmarkKernels(b *testing.B) {
	be := open(b)
	b.Run(be.Name(), func(b *testing.B) {
		kerneltest.Bench(b, func(*testing.B) kernels.Backend { return be })
	})
}
