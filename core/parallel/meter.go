package parallel

import (
	"fmt"
	"sync"

	"github.com/lockstep-ml/lockstep/kernels"
)

// What a rank's memory is for. The first three are the state that the stages of
// ZeRO shard.
const (
	MemWeights     = "weights"
	MemGrads       = "grads"
	MemMoments     = "moments"
	MemActivations = "activations"
	MemEvidence    = "evidence" // copies that only recording needs
	MemOther       = "other"    // tables, scratch, loss, buffers between ranks, and what nobody named
)

// Meter counts a rank's live bytes by purpose, at allocation and release: every
// allocation of the rank goes through it, by Alloc or by a backend from For.
type Meter struct {
	Backend kernels.Backend

	mu         sync.Mutex
	what       map[kernels.Buffer]string
	live, peak map[string]int64
	total, top int64 // of weights, grads and moments together
}

// For is the backend with its allocations counted for a purpose.
func (m *Meter) For(what string) kernels.Backend { return &metered{m.Backend, m, what} }

type metered struct {
	kernels.Backend
	m    *Meter
	what string
}

// Alloc implements kernels.Memory.
func (b *metered) Alloc(n int) (kernels.Buffer, error) {
	buf, err := b.Backend.Alloc(n)
	if err == nil {
		b.m.add(buf, b.what)
	}
	return buf, err
}

// Free implements kernels.Memory.
func (b *metered) Free(buf kernels.Buffer) {
	b.m.remove(buf)
	b.Backend.Free(buf)
}

// Alloc allocates n zeroed elements for a purpose.
func (m *Meter) Alloc(what string, n int) (kernels.Tensor, error) {
	b, err := m.For(what).Alloc(n)
	if err != nil {
		return kernels.Tensor{}, fmt.Errorf("%s of %d elements: %w", what, n, err)
	}
	return kernels.Flat(b), nil
}

// Free gives a whole allocation back.
func (m *Meter) Free(t kernels.Tensor) { m.For("").Free(t.Buf) }

func (m *Meter) add(buf kernels.Buffer, what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ready()
	m.what[buf] = what
	m.count(what, 4*int64(buf.Len()))
}

func (m *Meter) remove(buf kernels.Buffer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if what, ok := m.what[buf]; ok {
		delete(m.what, buf)
		m.count(what, -4*int64(buf.Len()))
	}
}

// ready makes the maps of the zero value. The caller holds mu.
func (m *Meter) ready() {
	if m.what == nil {
		m.what, m.live, m.peak = map[kernels.Buffer]string{}, map[string]int64{}, map[string]int64{}
	}
}

// count adds bytes to a purpose. The caller holds mu.
func (m *Meter) count(what string, bytes int64) {
	m.live[what] += bytes
	m.peak[what] = max(m.peak[what], m.live[what])
	if what == MemWeights || what == MemGrads || what == MemMoments {
		m.total += bytes
		m.top = max(m.top, m.total)
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
	for _, what := range []string{MemWeights, MemGrads, MemMoments, MemActivations, MemOther} {
		out = append(out, Usage{what, m.live[what], m.peak[what]})
		m.peak[what] = m.live[what]
	}
	out = append(out, Usage{"state", m.total, m.top})
	m.top = m.total
	return out
}
