//go:build cuda

package cuda

import (
	"flag"
	"fmt"
	"math"
	"runtime"
	"sync"
	"testing"

	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// Of the 2^32 inputs of exp and log a simulated device is given one in sampleStride, which
// is a prime, and those next to where the definitions change course. That is a sample, and
// proves nothing of the others; a real device is given all.
const (
	sampleStride = 257
	shortStride  = 65537
	nearEdges    = 300
)

// sweepChunk is how many inputs are with the device at once.
const sweepChunk = 1 << 20

// edges are inputs at which exp or log changes course, or the bits of inputs do.
func edges() []float32 {
	tiny, inf := float32(math.SmallestNonzeroFloat32), float32(math.Inf(1))
	return []float32{0, tiny, 0x1p-126, 0.5, 0x1.555556p-1, 1, 0x1.555556p0, 2, 0x1.62e42ep6, 87.33655, 103.972, 104, 0x1.fffffep127, inf,
		math.Float32frombits(0x7fc00000)}
}

var sweepAll = flag.Bool("all-inputs", false, "sweep all inputs on a simulated device, too: many minutes")

// TestSweep: exp and log have the bits of their definition for every float32, on a device.
func TestSweep(t *testing.T) {
	b := opened(t)
	stride, what := uint64(1), "all inputs of exp and log"
	if b.dev.Simulated && !*sweepAll || testing.Short() {
		stride = sampleStride
		if testing.Short() {
			stride = shortStride
		}
		what = fmt.Sprintf("a sample, not the sweep: one in %d inputs of exp and log", stride)
	}
	s := newSweep(t, b)
	for _, e := range edges() {
		for _, sign := range []uint32{0, 1 << 31} {
			bits := math.Float32bits(e) | sign
			s.inputs(uint64(bits-nearEdges), 1, 2*nearEdges)
		}
	}
	for at := uint64(0); at < 1<<32; at += stride * sweepChunk {
		s.inputs(at, stride, int(min(sweepChunk, (1<<32-at+stride-1)/stride)))
	}
	t.Logf("%s on %s: %d are the definition's", what, b.Name(), s.seen)
}

// sweep is memory on both sides for a chunk of inputs.
type sweep struct {
	t            *testing.T
	b            *Backend
	x, got       []float32
	on, zeros    kernels.Tensor // inputs, and 0 for each
	sums, result kernels.Tensor
	tokens       []int32
	seen         int
}

func newSweep(t *testing.T, b *Backend) *sweep {
	s := &sweep{t: t, b: b, x: make([]float32, sweepChunk), got: make([]float32, sweepChunk), tokens: make([]int32, sweepChunk)}
	for _, to := range []*kernels.Tensor{&s.on, &s.zeros, &s.sums, &s.result} {
		buf, err := b.Alloc(sweepChunk)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Free(buf) })
		*to = kernels.Flat(buf)
	}
	return s
}

// inputs holds n inputs, whose bits are apart by stride, against the definition. exp is that
// of LogitsExpSum with a maximum of 0; log that of CrossEntropy, whose maximum of -0 changes
// no logarithm, and neither does the target of +0.
func (s *sweep) inputs(from, stride uint64, n int) {
	for i := range n {
		s.x[i] = math.Float32frombits(uint32(from + uint64(i)*stride))
	}
	const cols = 64
	rows := ceil(n, cols)
	for i := n; i < rows*cols; i++ {
		s.x[i] = 0
	}
	s.b.Write(s.on.Range(0, rows*cols), s.x[:rows*cols])
	s.b.LogitsExpSum(s.sums.As(1, rows), s.on.As(rows, cols), s.zeros.As(1, rows), nil)
	s.compare("exp", s.on, n, ref.Exp32)

	one := func(x kernels.Tensor) kernels.Tensor { return x.As(1, n) }
	s.b.Write(one(s.on), s.x[:n])
	s.b.Fill(one(s.sums), math.Copysign(0, -1))
	s.b.CrossEntropy(one(s.result), kernels.Tensor{Buf: s.on.Buf, Rows: n}, one(s.on), one(s.sums), one(s.zeros), s.tokens[:n], 0, 1)
	s.compare("log", s.result, n, ref.Log32)
	s.seen += n
}

// compare holds n results against the definition, on all processors.
func (s *sweep) compare(what string, result kernels.Tensor, n int, f func(float32) float32) {
	if err := s.b.Read(s.got[:n], result.Range(0, n)); err != nil {
		s.t.Fatal(err)
	}
	var all sync.WaitGroup
	shares := runtime.GOMAXPROCS(0)
	for k := range shares {
		all.Go(func() {
			for i := n * k / shares; i < n*(k+1)/shares; i++ {
				if got, want := kernels.Bits(s.got[i]), kernels.Bits(f(s.x[i])); got != want {
					s.t.Errorf("%s of %x (bits %08x) has bits %08x, want %08x", what, s.x[i], math.Float32bits(s.x[i]), got, want)
					return
				}
			}
		})
	}
	all.Wait()
	if s.t.Failed() {
		s.t.FailNow()
	}
}
