package suite

import (
	"fmt"
	"math"

	"github.com/lockstep-ml/lockstep/core/trace"
	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// host is package ref, and what must come out on devices.
type host struct{ kernels.Backend }

func newHost() *host { return &host{ref.New[float32]()} }

// zeros is a vector of n zeros.
func (h *host) zeros(n int) kernels.Tensor {
	b, err := h.Alloc(n)
	if err != nil {
		panic(err) // guarded by whoever runs the drill
	}
	return kernels.Flat(b)
}

// vector is one of n elements, of a seed and a number.
func (h *host) vector(seed uint64, number, n int) kernels.Tensor {
	x := make([]float32, n)
	for i := range x {
		x[i] = value(seed, uint64(number), uint64(i))
	}
	t := h.zeros(n)
	h.Write(t, x)
	return t
}

// value is a number whose bits are spread by a mix: of both signs, about as large as 1.
func value(seed, number, i uint64) float32 {
	z := mix(seed*0x9e3779b97f4a7c15 + number*0xbf58476d1ce4e5b9 + i)
	return math.Float32frombits(uint32(z)&0x807fffff | uint32(119+z>>32&15)<<23)
}

// mix spreads 64 bits.
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// elements are those of a tensor of the host.
func (h *host) elements(t kernels.Tensor) []float32 { return get(h, t) }

// shifted is x from a place on, and then what is before that.
func (h *host) shifted(x []float32, at int) kernels.Tensor {
	t := h.zeros(len(x))
	h.Write(t.Range(0, len(x)-at), x[at:])
	h.Write(t.Range(len(x)-at, len(x)), x[:at])
	return t
}

// digest is the hash that a tensor must have on a device.
func (h *host) digest(t kernels.Tensor) (d kernels.Digest) {
	h.Hash(&d, t, hashed(t))
	return d
}

// hashed is where the elements of what is compared lie, for hashes.
func hashed(t kernels.Tensor) kernels.Place {
	return kernels.Place{ID: 1, RowStride: uint64(t.Cols)}
}

// same is compare with a tensor of the host.
func (h *host) same(be kernels.Backend, got, want kernels.Tensor) (trace.Event, error) {
	return h.compare(be, got, h.digest(want), func() kernels.Tensor { return want })
}

// compare holds a tensor of a device against the hash of what it must be, and where that
// differs what is read back against its elements. An error is a fault of the device.
func (h *host) compare(be kernels.Backend, got kernels.Tensor, must kernels.Digest, want func() kernels.Tensor) (trace.Event, error) {
	var is kernels.Digest
	be.Hash(&is, got, hashed(got))
	e := trace.Event{Kind: trace.KindDevice, Count: int64(got.Len())}
	err := be.Sync()
	if is == must || err != nil {
		return e, err
	}
	g, w := get(be, got), h.elements(want())
	for i := range g {
		if a, b := math.Float32bits(g[i]), math.Float32bits(w[i]); a != b {
			e.Index, e.Got, e.Want, e.Text = int64(i), a, b, fmt.Sprintf("element %d differs", i)
			return e, nil
		}
	}
	e.Text = "its hash differs, and what is read back does not: the hash is wrong, or memory was for a while"
	return e, nil
}

// memory is what one has of a device, to be freed.
type memory struct {
	kernels.Backend
	buffers []kernels.Buffer
	err     error // the first
}

// alloc is a vector of n elements; after an error it has no memory.
func (m *memory) alloc(n int) kernels.Tensor {
	if m.err != nil {
		return kernels.Tensor{Rows: 1, Cols: n, Stride: n}
	}
	b, err := m.Alloc(n)
	if err != nil {
		m.err = err
		return kernels.Tensor{Rows: 1, Cols: n, Stride: n}
	}
	m.buffers = append(m.buffers, b)
	return kernels.Flat(b)
}

func (m *memory) free() {
	for _, b := range m.buffers {
		m.Free(b)
	}
}
