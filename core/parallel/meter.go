package parallel

import (
	"fmt"
	"sync"

	"github.com/lockstep-ml/lockstep/kernels"
)

// What a rank's memory is for. The first three are the state that the stages of
// ZeRO shard; the others do not depend on the stage.
const (
	MemWeights = "weights"
	MemGrads   = "grads"
	MemMoments = "moments"
	MemOther   = "other" // loss, exchange and evidence buffers
)

// Meter allocates from a backend and counts live bytes by purpose, at
// allocation and release.
type Meter struct {
	Backend kernels.Backend

	mu         sync.Mutex
	live, peak map[string]int64
	total, top int64 // of weights, grads and moments together
}

// Alloc allocates n zeroed elements for a purpose.
func (m *Meter) Alloc(what string, n int) (kernels.Tensor, error) {
	b, err := m.Backend.Alloc(n)
	if err != nil {
		return kernels.Tensor{}, fmt.Errorf("%s of %d elements: %w", what, n, err)
	}
	m.count(what, 4*int64(n))
	return kernels.Flat(b), nil
}

// Free gives a whole allocation back.
func (m *Meter) Free(what string, t kernels.Tensor) {
	m.count(what, -4*int64(t.Buf.Len()))
	m.Backend.Free(t.Buf)
}

func (m *Meter) count(what string, bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ready()
	m.live[what] += bytes
	m.peak[what] = max(m.peak[what], m.live[what])
	if what != MemOther {
		m.total += bytes
		m.top = max(m.top, m.total)
	}
}

// ready makes the maps of the zero value.
func (m *Meter) ready() {
	if m.live == nil {
		m.live, m.peak = map[string]int64{}, map[string]int64{}
	}
}

// Usage is live memory in bytes of one purpose.
type Usage struct {
	What       string
	Live, Peak int64
}

// Take returns the live bytes and the peak since the last call, per purpose and
// (as "state") of weights, gradients and moments together.
func (m *Meter) Take() []Usage {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ready()
	var out []Usage
	for _, what := range []string{MemWeights, MemGrads, MemMoments} {
		out = append(out, Usage{what, m.live[what], m.peak[what]})
		m.peak[what] = m.live[what]
	}
	out = append(out, Usage{"state", m.total, m.top})
	m.top = m.total
	return out
}
