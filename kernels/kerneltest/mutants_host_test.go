package kerneltest_test

import (
	"slices"

	"github.com/lockstep-ml/lockstep/kernels"
)

type (
	copiedHost struct{ kernels.Backend }
	blindHost  struct{ kernels.Backend }
	longHost   struct{ kernels.Backend }
	looseHost  struct{ kernels.Backend }
)

// hostMutants are defects of Host.
func hostMutants(b kernels.Backend) []mutant {
	return []mutant{
		{"Memory", "Host gives a copy", copiedHost{b}},
		{"Memory", "Host ignores the offset of a view", blindHost{b}},
		{"Memory", "Host gives all that follows", longHost{b}},
		{"Memory", "Host gives a strided tensor", looseHost{b}},
	}
}

func (m copiedHost) Host(t kernels.Tensor) ([]float32, bool) {
	x, ok := m.Backend.Host(t)
	return slices.Clone(x), ok
}

func (m blindHost) Host(t kernels.Tensor) ([]float32, bool) {
	if t.Contiguous() {
		t.Off = 0
	}
	return m.Backend.Host(t)
}

func (m longHost) Host(t kernels.Tensor) ([]float32, bool) {
	if !t.Contiguous() {
		return nil, false
	}
	return m.Backend.Host(kernels.Flat(t.Buf).Range(t.Off, t.Buf.Len()))
}

func (m looseHost) Host(t kernels.Tensor) ([]float32, bool) {
	if !t.Contiguous() {
		t = t.RowRange(0, 1)
	}
	return m.Backend.Host(t)
}
