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
// allocation of the rank goes through it, by Alloc, Borrow or a backend from For.
type Meter struct {
	Backend kernels.Backend

	mu         sync.Mutex
	what       map[kernels.Buffer]use
	live, peak map[string]int64
	total, top int64            // of weights, grads and moments together
	kept       []kernels.Buffer // given back and not in use
}

// use is what an allocation is for, and how much of it is in use.
type use struct {
	what  string
	bytes int64
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

// Borrow is Alloc for what is needed again and again: it takes memory that
// Return has kept. The elements hold anything. Live bytes count what is in use.
// No more buffers are kept than were in use at once, none shorter than needed
// while a longer one could take its place: their memory is at most their number
// times the longest loan.
func (m *Meter) Borrow(what string, n int) (kernels.Tensor, error) {
	buf, small := m.fitting(n)
	if small != nil {
		m.For(what).Free(small)
	}
	if buf == nil {
		return m.Alloc(what, n)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	u := use{what, 4 * int64(n)}
	m.what[buf] = u
	m.count(what, u.bytes)
	return kernels.Flat(buf).Range(0, n), nil
}

// fitting takes the shortest kept buffer of at least n elements; where there is
// none, the longest that is too short, if any, has to make room.
func (m *Meter) fitting(n int) (buf, small kernels.Buffer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	best := -1
	for i, b := range m.kept {
		if best < 0 || better(b.Len(), m.kept[best].Len(), n) {
			best = i
		}
	}
	if best < 0 {
		return nil, nil
	}
	buf = m.kept[best]
	last := len(m.kept) - 1
	m.kept[best] = m.kept[last]
	m.kept = m.kept[:last]
	if buf.Len() < n {
		return nil, buf
	}
	return buf, nil
}

// better reports whether length a serves n elements better than b: the shorter
// of two that suffice, else the longer.
func better(a, b, n int) bool {
	if a >= n && b >= n {
		return a < b
	}
	return a > b
}

// Return gives what Borrow gave back, for the next Borrow.
func (m *Meter) Return(t kernels.Tensor) {
	m.mu.Lock()
	defer m.mu.Unlock()
	u := m.what[t.Buf]
	m.count(u.what, -u.bytes)
	m.what[t.Buf] = use{what: u.what}
	m.kept = append(m.kept, t.Buf)
}

func (m *Meter) add(buf kernels.Buffer, what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ready()
	u := use{what, 4 * int64(buf.Len())}
	m.what[buf] = u
	m.count(what, u.bytes)
}

func (m *Meter) remove(buf kernels.Buffer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if u, ok := m.what[buf]; ok {
		delete(m.what, buf)
		m.count(u.what, -u.bytes)
	}
}

// ready makes the maps of the zero value. The caller holds mu.
func (m *Meter) ready() {
	if m.what == nil {
		m.what, m.live, m.peak = map[kernels.Buffer]use{}, map[string]int64{}, map[string]int64{}
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
	out := make([]Usage, 0, 6)
	for _, what := range []string{MemWeights, MemGrads, MemMoments, MemActivations, MemOther} {
		out = append(out, Usage{what, m.live[what], m.peak[what]})
		m.peak[what] = m.live[what]
	}
	out = append(out, Usage{"state", m.total, m.top})
	m.top = m.total
	return out
}
