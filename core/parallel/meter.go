package parallel

import (
	"fmt"
	"sync"

	"github.com/lockstep-ml/lockstep/core/names"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Meter counts a rank's live bytes by purpose, at allocation and release: every
// allocation of the rank goes through it, by Alloc, Borrow or a backend from For.
type Meter struct {
	Backend kernels.Backend
	// Released, where not nil, is told what Return is given, before another Borrow.
	Released func(kernels.Tensor)

	mu         sync.Mutex
	what       map[kernels.Buffer]use
	live, peak map[string]int64
	total, top int64            // of weights, grads and moments together
	kept       []kernels.Buffer // to be lent again
	longest    int              // loan, in elements
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

// Sums implements kernels.Batcher: a meter changes no kernel.
func (b *metered) Sums() kernels.Sums {
	s, _ := kernels.SumsOf(b.Backend)
	return s
}

// Alloc implements kernels.Memory.
func (b *metered) Alloc(n int) (kernels.Buffer, error) {
	buf, err := b.Backend.Alloc(n)
	if err == nil {
		b.m.add(buf, b.what, n)
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

// Lend says that loans of up to n elements are to come.
func (m *Meter) Lend(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.longest = max(m.longest, n)
}

// Borrow is Alloc for what is needed again and again: it takes a buffer that
// Return has kept, and allocates one as long as the longest loan where all are
// lent. So memory is that length times the loans at once, while live bytes count
// what is in use. The elements hold anything.
func (m *Meter) Borrow(what string, n int) (kernels.Tensor, error) {
	m.Lend(n)
	buf := m.lendable()
	if buf != nil && buf.Len() < n { // nobody said that n was to come
		m.For("").Free(buf)
		buf = nil
	}
	if buf == nil {
		var err error
		if buf, err = m.Backend.Alloc(m.longest); err != nil {
			return kernels.Tensor{}, fmt.Errorf("%s of %d elements: %w", what, n, err)
		}
	}
	m.add(buf, what, n)
	return kernels.Flat(buf).Range(0, n), nil
}

// lendable takes a kept buffer, nil if there is none.
func (m *Meter) lendable() (buf kernels.Buffer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if last := len(m.kept) - 1; last >= 0 {
		buf = m.kept[last]
		m.kept = m.kept[:last]
	}
	return buf
}

// Return gives what Borrow gave back, for the next Borrow.
func (m *Meter) Return(t kernels.Tensor) {
	if m.Released != nil {
		m.Released(t)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	u := m.what[t.Buf]
	m.count(u.what, -u.bytes)
	m.what[t.Buf] = use{what: u.what}
	m.kept = append(m.kept, t.Buf)
}

// add counts n elements of buf for a purpose.
func (m *Meter) add(buf kernels.Buffer, what string, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ready()
	u := use{what, 4 * int64(n)}
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
	if what == names.MemWeights || what == names.MemGrads || what == names.MemMoments {
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
// (as names.MemState) of weights, gradients and moments together.
func (m *Meter) Take() []Usage {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ready()
	out := make([]Usage, 0, 6)
	for _, what := range []string{names.MemWeights, names.MemGrads, names.MemMoments, names.MemActivations, names.MemOther} {
		out = append(out, Usage{what, m.live[what], m.peak[what]})
		m.peak[what] = m.live[what]
	}
	out = append(out, Usage{names.MemState, m.total, m.top})
	m.top = m.total
	return out
}
