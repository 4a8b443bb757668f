package fault

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/lockstep-ml/lockstep/core/launch"
	"github.com/lockstep-ml/lockstep/kernels"
)

// Anywhere is one bit of one element of one buffer of a rank, at one moment.
type Anywhere struct {
	Rank    int
	Product int // flipped after the rank's n-th matrix product, from 0
	// Buffer and Element choose among the rank's buffers and a buffer's elements:
	// fractions of their numbers.
	Buffer, Element float64
	Bit             uint
}

// DrawAnywhere draws a bit of a run of the given number of ranks, of which each
// computes at least the given number of matrix products.
func DrawAnywhere(r *rand.Rand, world, products int) Anywhere {
	return Anywhere{Rank: r.IntN(world), Product: r.IntN(products), Buffer: r.Float64(), Element: r.Float64(), Bit: uint(r.IntN(32))}
}

// String says what is flipped.
func (a Anywhere) String() string {
	return fmt.Sprintf("bit %d at %.4f of buffer %.4f of rank %d after product %d", a.Bit, a.Element, a.Buffer, a.Rank, a.Product)
}

// FlipAnywhere flips the bit, once.
func FlipAnywhere(a Anywhere) Fault {
	return OnBackend(a.Rank, func(be kernels.Backend) kernels.Backend {
		m := &memory{at: a, left: a.Product}
		m.After = *afterProducts(be, m.product)
		return m
	})
}

// memory is a backend that knows its buffers and flips a bit of one.
type memory struct {
	After
	at   Anywhere
	left int

	mu  sync.Mutex // a rank's queue of reductions may allocate too
	all []kernels.Buffer
}

func (m *memory) Alloc(n int) (kernels.Buffer, error) {
	b, err := m.Backend.Alloc(n)
	if err == nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.all = append(m.all, b)
	}
	return b, err
}

func (m *memory) Free(b kernels.Buffer) {
	m.mu.Lock()
	if i := slices.Index(m.all, b); i >= 0 {
		m.all = slices.Delete(m.all, i, i+1)
	}
	m.mu.Unlock()
	m.Backend.Free(b)
}

// product counts a matrix product and flips the bit when it is time.
func (m *memory) product() {
	if m.left--; m.left != -1 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.all) == 0 {
		return
	}
	b := m.all[int(m.at.Buffer*float64(len(m.all)))]
	if b.Len() == 0 {
		return
	}
	_ = Flip(m.Backend, kernels.Flat(b).Range(int(m.at.Element*float64(b.Len())), b.Len()), m.at.Bit) // a read error shows by itself
}

// Products counts the matrix products of every rank that Anywhere counts.
func Products(of *PerRank[int]) Fault {
	return func(p *launch.Parts) {
		onBackends(p, Every, func(r int, be kernels.Backend) kernels.Backend {
			n := of.At(r)
			return afterProducts(be, func() { *n++ })
		})
	}
}

// afterProducts is a backend with f after every matrix product.
func afterProducts(be kernels.Backend, f func()) *After {
	return &After{be, func(_ kernels.Backend, kernel string, _ ...kernels.Tensor) {
		switch kernel {
		case "MatMulNT", "MatMulNN", "MatMulTN":
			f()
		}
	}}
}
