package cpu

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/lockstep-ml/lockstep/kernels"
	"github.com/lockstep-ml/lockstep/kernels/ref"
)

// The instruction sets.
const (
	Ref    = "ref"    // plain Go, package ref
	AVX2   = "avx2"   // AVX2 and FMA
	AVX512 = "avx512" // AVX-512 F, BW, DQ and VL
)

// Options choose how a backend computes; none of them changes a bit.
type Options struct {
	// ISA is an instruction set; empty is the best of this processor.
	ISA string
	// Threads is the number of threads that share large kernels, the caller's
	// included. 0 means GOMAXPROCS.
	Threads int
	// Tally, where not nil, counts what tiles were asked to do, over all backends
	// opened with it. Backend.Tally counts the routines of one.
	Tally *Tally
	// Pool, where not nil, is memory to allocate from before the run-time's. What is not
	// freed stays in use for as long as the pool is.
	Pool kernels.Pool
}

// ISAs lists the instruction sets of this processor, the best one first; Ref is
// always the last.
func ISAs() []string {
	var names []string
	for _, s := range detect() {
		names = append(names, s.name)
	}
	return append(names, Ref)
}

// ParseISA checks the name of an instruction set, as a user wrote it, against
// this processor. Empty is let through: the best.
func ParseISA(s string) (string, error) {
	if s == "" || slices.Contains(ISAs(), s) {
		return s, nil
	}
	if s == AVX2 || s == AVX512 {
		return "", fmt.Errorf("instruction set %s: this processor has %s", s, strings.Join(ISAs(), ", "))
	}
	return "", fmt.Errorf("instruction set %q: want %s, %s or %s", s, Ref, AVX2, AVX512)
}

// Backend runs the canonical kernels on []float32. Kernels are done when they
// return. Several goroutines may use it at once as long as they write different
// tensors; tensors of one Backend may be given to another.
type Backend struct {
	*ref.Backend[float32]
	isa     *isa // nil: plain Go
	threads int
	jobs    chan *call // nil: one thread
	fault   atomic.Pointer[error]
	counts  counts

	mu         sync.Mutex
	idle       []*call
	workspaces []*workspace
}

var _ kernels.Backend = (*Backend)(nil)

// New opens a backend. It refuses an instruction set that this processor lacks,
// a negative number of threads, and a processor whose vectors flush subnormals
// or do not round to nearest.
func New(o Options) (*Backend, error) {
	name, err := ParseISA(o.ISA)
	if err != nil {
		return nil, err
	}
	if o.Threads < 0 {
		return nil, fmt.Errorf("%d threads: want 0 (all) or more", o.Threads)
	}
	b := &Backend{Backend: ref.NewIn(o.Pool), threads: o.Threads}
	if b.threads == 0 {
		b.threads = runtime.GOMAXPROCS(0)
	}
	for _, s := range detect() {
		if name == "" || s.name == name {
			b.isa = s
			break
		}
	}
	if b.isa == nil {
		b.threads = 1
		return b, nil
	}
	if o.Tally != nil {
		b.isa = o.Tally.watch(b.isa)
	}
	b.start()
	return b, b.canary()
}

// Name is "cpu-" and the instruction set.
func (b *Backend) Name() string {
	if b.isa == nil {
		return "cpu-" + Ref
	}
	return "cpu-" + b.isa.name
}

// Threads is the number of threads that share a kernel.
func (b *Backend) Threads() int { return b.threads }

// Read copies src into dst, bit by bit. The error is a fault of the processor's
// floating-point mode, see Sync.
func (b *Backend) Read(dst []float32, src kernels.Tensor) error {
	if err := b.Backend.Read(dst, src); err != nil {
		return err
	}
	return b.Sync()
}

// ReadWide copies src into dst. The error is as in Read.
func (b *Backend) ReadWide(dst []float64, src kernels.Tensor) error {
	if err := b.Backend.ReadWide(dst, src); err != nil {
		return err
	}
	return b.Sync()
}

// Sync returns an error once any thread was found in a floating-point mode
// other than round to nearest with subnormals, which foreign code in the
// process may set; results from then on are not to be trusted.
func (b *Backend) Sync() error {
	if err := b.fault.Load(); err != nil {
		return *err
	}
	return nil
}
