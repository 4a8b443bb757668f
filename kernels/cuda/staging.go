//go:build cuda

package cuda

import (
	"sync"

	"github.com/lockstep-ml/lockstep/gpu"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// staging is the definition in memory of the host that devices copy from and to by
// themselves: what communicators carry goes through it, and the driver copies it nowhere
// else first.
type staging struct {
	*ref.Backend[float32]
	dev *gpu.Device

	mu     sync.Mutex
	pinned map[kernels.Buffer]*gpu.Pinned
}

func newStaging(d *gpu.Device) *staging {
	return &staging{Backend: ref.New[float32](), dev: d, pinned: map[kernels.Buffer]*gpu.Pinned{}}
}

// Alloc returns n zeroed elements. Where the system lets no more memory be pinned they are
// in other memory, from which copies are slower.
func (s *staging) Alloc(n int) (kernels.Buffer, error) {
	if n <= 0 {
		return s.Backend.Alloc(n)
	}
	mem, err := s.dev.AllocPinned(elementBytes * n)
	if err != nil {
		return s.Backend.Alloc(n)
	}
	x := gpu.As[float32](mem.Bytes())
	clear(x)
	buf, _ := s.View(x) // of float32 always
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pinned[buf] = mem
	return buf, nil
}

// Free ends the use of a buffer: kernels on it panic from now on.
func (s *staging) Free(x kernels.Buffer) {
	s.mu.Lock()
	mem := s.pinned[x]
	delete(s.pinned, x)
	s.mu.Unlock()
	s.Backend.Free(x)
	if mem != nil {
		_ = mem.Free() // what is wrong with the device shows at its next call
	}
}
